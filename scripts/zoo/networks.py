"""Networks that `vramlab predict --model NAME` knows by a recorded graph: the configuration of each, from its publisher's figures.

ENDS: further numbers of layers whose memory is recorded, where the last layer is of another kind than the network's.
`layers` are those that are traced: a prefix of the network with every pair of kinds that follow each other, the commonest at least twice. `length` is
that of the example, which is longer than a window of its attention.
"""


def decoder(kind, architecture, vocabulary, width, hidden, layers, heads, groups, positions, dtype="bfloat16", **more):
    return dict(model_type=kind, architectures=[architecture], vocab_size=vocabulary, hidden_size=width, intermediate_size=hidden,
                num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=groups, max_position_embeddings=positions,
                torch_dtype=dtype, **more)


def windows(layers, every):
    """Kinds of layers, of which every so-manieth sees all tokens."""
    return ["full_attention" if (layer + 1) % every == 0 else "sliding_attention" for layer in range(layers)]


NETWORKS = {
    "qwen3-30b-a3b": (decoder("qwen3_moe", "Qwen3MoeForCausalLM", 151936, 2048, 6144, 48, 32, 4, 40960, head_dim=128, num_experts=128,
                              num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True, rms_norm_eps=1e-6,
                              rope_theta=1000000.0, tie_word_embeddings=False), 4, 64),
    "mixtral-8x7b": (decoder("mixtral", "MixtralForCausalLM", 32000, 4096, 14336, 32, 32, 8, 32768, num_local_experts=8,
                             num_experts_per_tok=2, rope_theta=1000000.0, sliding_window=None, rms_norm_eps=1e-5), 4, 64),
    "olmo-2-7b": (decoder("olmo2", "Olmo2ForCausalLM", 100352, 4096, 11008, 32, 32, 32, 4096, rope_theta=500000, rms_norm_eps=1e-6), 4, 64),
    "smollm3-3b": (decoder("smollm3", "SmolLM3ForCausalLM", 128256, 2048, 11008, 36, 16, 4, 65536, rope_theta=5000000.0,
                           no_rope_layer_interval=4, rms_norm_eps=1e-6, tie_word_embeddings=True, pad_token_id=128004), 8, 64),
    "granite-3.3-2b": (decoder("granite", "GraniteForCausalLM", 49159, 2048, 8192, 40, 32, 8, 131072, embedding_multiplier=12.0,
                               attention_multiplier=0.015625, residual_multiplier=0.22, logits_scaling=8.0, rope_theta=10000000.0,
                               tie_word_embeddings=True), 4, 64),
    "gemma-3-1b": (decoder("gemma3_text", "Gemma3ForCausalLM", 262144, 1152, 6912, 26, 4, 1, 32768, head_dim=256, query_pre_attn_scalar=256,
                           sliding_window=512, layer_types=windows(26, 6), rope_theta=1000000, rope_local_base_freq=10000), 8, 640),
    "gemma-2-2b": (decoder("gemma2", "Gemma2ForCausalLM", 256000, 2304, 9216, 26, 8, 4, 8192, head_dim=256, query_pre_attn_scalar=256,
                           sliding_window=4096, layer_types=windows(26, 2), attn_logit_softcapping=50.0, final_logit_softcapping=30.0), 5, 64),
    "gpt-oss-20b": (decoder("gpt_oss", "GptOssForCausalLM", 201088, 2880, 2880, 24, 64, 8, 131072, head_dim=64, num_local_experts=32,
                            num_experts_per_tok=4, sliding_window=128, rope_theta=150000,
                            layer_types=["sliding_attention", "full_attention"] * 12), 6, 256),
    "glm-4-9b-0414": (decoder("glm4", "Glm4ForCausalLM", 151552, 4096, 13696, 40, 32, 2, 32768, head_dim=128, partial_rotary_factor=0.5,
                              attention_bias=True, rms_norm_eps=1e-5, pad_token_id=151329, tie_word_embeddings=False), 4, 64),
    "starcoder2-3b": (decoder("starcoder2", "Starcoder2ForCausalLM", 49152, 3072, 12288, 30, 24, 2, 16384, sliding_window=4096,
                              use_bias=True, rope_theta=999999.4420358813), 4, 64),
    "xlm-roberta-base": (dict(model_type="xlm-roberta", architectures=["XLMRobertaForMaskedLM"], vocab_size=250002, hidden_size=768,
                              intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, max_position_embeddings=514,
                              type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, layer_norm_eps=1e-5), 4, 64),
    "modernbert-base": (dict(model_type="modernbert", architectures=["ModernBertForMaskedLM"], vocab_size=50368, hidden_size=768,
                             intermediate_size=1152, num_hidden_layers=22, num_attention_heads=12, max_position_embeddings=8192,
                             global_attn_every_n_layers=3, local_attention=128, pad_token_id=50283), 8, 64),
    "gemma-2-9b": (decoder("gemma2", "Gemma2ForCausalLM", 256000, 3584, 14336, 42, 16, 8, 8192, head_dim=256, query_pre_attn_scalar=256,
                           sliding_window=4096, layer_types=windows(42, 2), attn_logit_softcapping=50.0, final_logit_softcapping=30.0), 5, 64),
    "gpt-oss-120b": (decoder("gpt_oss", "GptOssForCausalLM", 201088, 2880, 2880, 36, 64, 8, 131072, head_dim=64, num_local_experts=128,
                             num_experts_per_tok=4, sliding_window=128, rope_theta=150000,
                             layer_types=["sliding_attention", "full_attention"] * 18), 6, 256),
    "granite-3.3-8b": (decoder("granite", "GraniteForCausalLM", 49159, 4096, 12800, 40, 32, 8, 131072, embedding_multiplier=12.0,
                               attention_multiplier=0.0078125, residual_multiplier=0.22, logits_scaling=16.0, rope_theta=10000000.0,
                               tie_word_embeddings=True), 4, 64),
    "modernbert-large": (dict(model_type="modernbert", architectures=["ModernBertForMaskedLM"], vocab_size=50368, hidden_size=1024,
                              intermediate_size=2624, num_hidden_layers=28, num_attention_heads=16, max_position_embeddings=8192,
                              global_attn_every_n_layers=3, local_attention=128, pad_token_id=50283), 8, 64),
    "olmo-2-13b": (decoder("olmo2", "Olmo2ForCausalLM", 100352, 5120, 13824, 40, 40, 40, 4096, rope_theta=500000, rms_norm_eps=1e-6), 4, 64),
    "olmo-2-1b": (decoder("olmo2", "Olmo2ForCausalLM", 100352, 2048, 8192, 16, 16, 16, 4096, rope_theta=500000, rms_norm_eps=1e-6), 4, 64),
    "olmo-3-7b": (decoder("olmo3", "Olmo3ForCausalLM", 100278, 4096, 11008, 32, 32, 32, 65536, sliding_window=4096, rope_theta=500000,
                          layer_types=windows(32, 4)), 8, 64),
    "qwen3-235b-a22b": (decoder("qwen3_moe", "Qwen3MoeForCausalLM", 151936, 4096, 12288, 94, 64, 4, 40960, head_dim=128, num_experts=128,
                                num_experts_per_tok=8, moe_intermediate_size=1536, norm_topk_prob=True, rms_norm_eps=1e-6,
                                rope_theta=1000000.0, tie_word_embeddings=False), 4, 64),
}

ENDS = {"smollm3-3b": [9, 7], "gpt-oss-20b": [5]}
