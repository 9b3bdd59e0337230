"""Configurations of 99 models that people use, from their publishers' figures; `count.py` asks `vramlab predict` about each.

A field that is absent has the value of transformers' own class. Networks whose configuration the program knows by name are only named.
"""

from typing import Any

from networks import NETWORKS, decoder, windows

# Known to the program by name: their `config.json` is that of `lab/imports/known/models.json`.
KNOWN = """bert-base flan-t5-base gemma-7b llama-3.1-8b llama-3.2-1b llama-3.2-3b mistral-7b-v0.3 mistral-nemo-12b phi-3-mini-4k phi-4 phi-4-mini
qwen2.5-0.5b qwen2.5-7b qwen3-0.6b qwen3-8b r1-distill-qwen-1.5b roberta-large smollm2-135m t5-small tinyllama-1.1b vit-base""".split()


def encoder(kind, architecture, vocabulary, width=768, layers=12, heads=12, **more):
    return dict(model_type=kind, architectures=[architecture], vocab_size=vocabulary, hidden_size=width, intermediate_size=4 * width,
                num_hidden_layers=layers, num_attention_heads=heads, **more)


def classified(kind, architecture, classes, **more):
    return dict(model_type=kind, architectures=[architecture], id2label={str(number): str(number) for number in range(classes)}, **more)


def diffused(name, **more):
    return dict(_class_name=name, _diffusers_version="0.30.0", **more)


def text(kind, *sizes, **more):
    """The part of a network that reads text."""
    made = decoder(kind, "", *sizes, **more)
    return {name: value for name, value in made.items() if name not in ("architectures", "torch_dtype")}


YARN = dict(beta_fast=32, beta_slow=1, factor=40, original_max_position_embeddings=4096, type="yarn")
DEEPSEEK = dict(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, rope_theta=10000, tie_word_embeddings=False)
XLM = dict(type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
GEMMA_EYE = dict(model_type="siglip_vision_model", hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16, patch_size=14)
BF16 = dict(torch_dtype="bfloat16")
UNET = dict(in_channels=4, out_channels=4, layers_per_block=2)
FULL_AT = lambda places, layers, other: ["full_attention" if layer in places else other for layer in range(layers)]

MODELS: dict[str, Any] = {name: name for name in KNOWN}
MODELS.update({name: config for name, (config, _, _) in NETWORKS.items() if name not in ("gemma-2-2b",)})
MODELS.update({
    "all-minilm-l6": encoder("bert", "BertModel", 30522, 384, 6),
    "bge-base-en": encoder("bert", "BertModel", 30522),
    "e5-large-v2": encoder("bert", "BertModel", 30522, 1024, 24, 16),
    "bge-m3": encoder("xlm-roberta", "XLMRobertaModel", 250002, 1024, 24, 16, max_position_embeddings=8194, **XLM),
    "multilingual-e5-base": encoder("xlm-roberta", "XLMRobertaModel", 250002, max_position_embeddings=514, **XLM),
    "gte-modernbert-base": dict(NETWORKS["modernbert-base"][0], architectures=["ModernBertModel"]),
    "mpnet-base": encoder("mpnet", "MPNetForMaskedLM", 30527, max_position_embeddings=514, pad_token_id=1),
    "electra-base": encoder("electra", "ElectraForPreTraining", 30522, embedding_size=768),
    "esm2-650m": encoder("esm", "EsmForMaskedLM", 33, 1280, 33, 20, max_position_embeddings=1026, position_embedding_type="rotary", token_dropout=True,
                         emb_layer_norm_before=False, mask_token_id=32, pad_token_id=1),
    "deberta-v3-base": encoder("deberta-v2", "", 128100, max_position_embeddings=512, relative_attention=True, position_buckets=256,
                               norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type="p2c|c2p", max_relative_positions=-1,
                               position_biased_input=False, type_vocab_size=0, layer_norm_eps=1e-7),
    "bart-base": dict(model_type="bart", architectures=["BartModel"], vocab_size=50265, d_model=768, encoder_layers=6, decoder_layers=6,
                      encoder_ffn_dim=3072, decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12,
                      max_position_embeddings=1024, is_encoder_decoder=True),
    "nllb-200-600m": dict(model_type="m2m_100", architectures=["M2M100ForConditionalGeneration"], vocab_size=256206, d_model=1024, encoder_layers=12,
                          decoder_layers=12, encoder_ffn_dim=4096, decoder_ffn_dim=4096, encoder_attention_heads=16, decoder_attention_heads=16,
                          max_position_embeddings=1024, is_encoder_decoder=True),
    "mt5-small": dict(model_type="mt5", architectures=["MT5ForConditionalGeneration"], vocab_size=250112, d_model=512, d_ff=1024, d_kv=64,
                      num_layers=8, num_decoder_layers=8, num_heads=6, feed_forward_proj="gated-gelu", is_encoder_decoder=True, tie_word_embeddings=False,
                      decoder_start_token_id=0),
    "chronos-t5-small": dict(model_type="t5", architectures=["T5ForConditionalGeneration"], vocab_size=4096, d_model=512, d_ff=2048, d_kv=64,
                             num_layers=6, num_decoder_layers=6, num_heads=8, feed_forward_proj="relu", is_encoder_decoder=True,
                             decoder_start_token_id=0, **BF16),
    "timesfm-2.0-500m": dict(model_type="timesfm", architectures=["TimesFmModelForPrediction"], context_length=2048),
    "falcon3-7b": decoder("llama", "LlamaForCausalLM", 131072, 3072, 23040, 28, 12, 4, 32768, head_dim=256, rope_theta=1000042, rms_norm_eps=1e-6),
    "llama-3.3-70b": decoder("llama", "LlamaForCausalLM", 128256, 8192, 28672, 80, 64, 8, 131072, rope_theta=500000.0, rms_norm_eps=1e-5),
    "r1-distill-llama-8b": decoder("llama", "LlamaForCausalLM", 128256, 4096, 14336, 32, 32, 8, 131072, rope_theta=500000.0, rms_norm_eps=1e-5),
    "ministral-8b": decoder("mistral", "MistralForCausalLM", 131072, 4096, 12288, 36, 32, 8, 32768, head_dim=128, sliding_window=32768,
                            rope_theta=1e8, rms_norm_eps=1e-5),
    "qwen2.5-coder-32b": decoder("qwen2", "Qwen2ForCausalLM", 152064, 5120, 27648, 64, 40, 8, 32768, rope_theta=1000000.0, use_sliding_window=False,
                                 max_window_layers=70, sliding_window=131072, rms_norm_eps=1e-6),
    "qwen3-embedding-0.6b": decoder("qwen3", "Qwen3ForCausalLM", 151669, 1024, 3072, 28, 16, 8, 32768, head_dim=128, rope_theta=1000000,
                                    tie_word_embeddings=True, rms_norm_eps=1e-6),
    "command-r7b": decoder("cohere2", "Cohere2ForCausalLM", 256000, 4096, 14336, 32, 32, 8, 132096, head_dim=128, sliding_window=4096,
                           layer_types=windows(32, 4), rope_theta=50000, logit_scale=0.25),
    "deepseek-v2-lite": decoder("deepseek_v2", "DeepseekV2ForCausalLM", 102400, 2048, 10944, 27, 16, 16, 163840, moe_intermediate_size=1408,
                                n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, q_lora_rank=None,
                                topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False,
                                rope_scaling=dict(YARN, mscale=0.707, mscale_all_dim=0.707), **DEEPSEEK),
    "deepseek-v3": decoder("deepseek_v3", "DeepseekV3ForCausalLM", 129280, 7168, 18432, 61, 128, 128, 163840, moe_intermediate_size=2048,
                           n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, q_lora_rank=1536, n_group=8,
                           topk_group=4, routed_scaling_factor=2.5, rope_scaling=dict(YARN, mscale=1.0, mscale_all_dim=1.0),
                           quantization_config=dict(quant_method="fp8", fmt="e4m3", weight_block_size=[128, 128]), **DEEPSEEK),
    "gemma-2-9b": decoder("gemma2", "Gemma2ForCausalLM", 256000, 3584, 14336, 42, 16, 8, 8192, head_dim=256, query_pre_attn_scalar=256,
                          sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
    "gemma-3-4b": dict(model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], image_token_index=262144, mm_tokens_per_image=256,
                       text_config=text("gemma3_text", 262208, 2560, 10240, 34, 8, 4, 131072, head_dim=256, sliding_window=1024),
                       vision_config=dict(GEMMA_EYE, image_size=896), **BF16),
    "gemma-3n-e2b": dict(model_type="gemma3n", architectures=["Gemma3nForConditionalGeneration"],
                         text_config=dict(model_type="gemma3n_text", num_hidden_layers=30, intermediate_size=8192, num_kv_shared_layers=10,
                                          activation_sparsity_pattern=[0.95] * 10 + [0.0] * 20, layer_types=windows(30, 5)), **BF16),
    "glm-4-9b": decoder("glm", "GlmForCausalLM", 151552, 4096, 13696, 40, 32, 2, 131072, head_dim=128, attention_bias=True, pad_token_id=151329,
                        tie_word_embeddings=False),
    "glm-4.5-air": decoder("glm4_moe", "Glm4MoeForCausalLM", 151552, 4096, 10944, 46, 96, 8, 131072, head_dim=128, moe_intermediate_size=1408,
                           n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=1, attention_bias=True,
                           partial_rotary_factor=0.5, rope_theta=1000000, num_nextn_predict_layers=1),
    "olmo-3-7b": decoder("olmo3", "Olmo3ForCausalLM", 100278, 4096, 11008, 32, 32, 32, 65536, sliding_window=4096, rope_theta=500000),
    "phi-3.5-moe": decoder("phimoe", "PhimoeForCausalLM", 32064, 4096, 6400, 32, 32, 8, 131072, num_local_experts=16, num_experts_per_tok=2,
                           attention_bias=True, lm_head_bias=True),
    "qwen3-next-80b-a3b": decoder("qwen3_next", "Qwen3NextForCausalLM", 151936, 2048, 5120, 48, 16, 2, 262144, head_dim=256, num_experts=512,
                                  num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512, rope_theta=10000000),
    "llama-4-scout": dict(model_type="llama4", architectures=["Llama4ForConditionalGeneration"],
                          text_config=dict(model_type="llama4_text", max_position_embeddings=10485760),
                          vision_config=dict(model_type="llama4_vision_model", hidden_size=1408, image_size=336, vision_output_dim=4096), **BF16),
    "falcon-h1-0.5b": decoder("falcon_h1", "FalconH1ForCausalLM", 32784, 1024, 2048, 36, 8, 2, 16384, head_dim=64, mamba_d_ssm=1536, mamba_n_heads=24,
                              mamba_d_head=64, mamba_d_state=128),
    "granite-4.0-h-micro": decoder("granitemoehybrid", "GraniteMoeHybridForCausalLM", 100352, 2048, 8192, 40, 32, 8, 131072, num_local_experts=0,
                                   num_experts_per_tok=0, shared_intermediate_size=8192, mamba_n_heads=64, mamba_d_head=64, mamba_d_state=128,
                                   layer_types=["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)], tie_word_embeddings=True),
    "jamba-1.5-mini": decoder("jamba", "JambaForCausalLM", 65536, 4096, 14336, 32, 32, 8, 262144, use_mamba_kernels=False),
    "lfm2-1.2b": decoder("lfm2", "Lfm2ForCausalLM", 65536, 2048, 12288, 16, 32, 8, 128000,
                         layer_types=FULL_AT((2, 5, 8, 10, 12, 14), 16, "conv")),
    "mamba-130m": dict(model_type="mamba", architectures=["MambaForCausalLM"], vocab_size=50280, hidden_size=768, num_hidden_layers=24),
    "mamba2-130m": dict(model_type="mamba2", architectures=["Mamba2ForCausalLM"], vocab_size=50288, hidden_size=768, num_hidden_layers=24,
                        num_heads=24, head_dim=64, n_groups=1, tie_word_embeddings=True),
    "rwkv-4-169m": dict(model_type="rwkv", architectures=["RwkvForCausalLM"], hidden_size=768, attention_hidden_size=768, intermediate_size=3072,
                        num_hidden_layers=12),
    "llava-1.5-7b": dict(model_type="llava", architectures=["LlavaForConditionalGeneration"], image_token_index=32000,
                         text_config=text("llama", 32064, 4096, 11008, 32, 32, 32, 4096), torch_dtype="float16"),
    "mistral-small-3.1-24b": dict(model_type="mistral3", architectures=["Mistral3ForConditionalGeneration"], **BF16),
    "paligemma-3b": dict(model_type="paligemma", architectures=["PaliGemmaForConditionalGeneration"], image_token_index=257152,
                         text_config=text("gemma", 257216, 2048, 16384, 18, 8, 1, 8192, head_dim=256),
                         vision_config=dict(GEMMA_EYE, image_size=224, projection_dim=2048, vision_use_head=False), **BF16),
    "qwen2.5-vl-7b": dict(model_type="qwen2_5_vl", architectures=["Qwen2_5_VLForConditionalGeneration"],
                          text_config=text("qwen2_5_vl_text", 152064, 3584, 18944, 28, 28, 4, 128000, tie_word_embeddings=False,
                                           rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24])),
                          vision_config=dict(model_type="qwen2_5_vl", hidden_size=1280, out_hidden_size=3584), **BF16),
    "qwen3-vl-4b": dict(model_type="qwen3_vl", architectures=["Qwen3VLForConditionalGeneration"], tie_word_embeddings=True,
                        text_config=text("qwen3_vl_text", 151936, 2560, 9728, 36, 32, 8, 262144, head_dim=128, rope_theta=5000000,
                                         rope_scaling=dict(mrope_interleaved=True, mrope_section=[24, 20, 20], rope_type="default")),
                        vision_config=dict(model_type="qwen3_vl", depth=24, hidden_size=1024, intermediate_size=4096, out_hidden_size=2560,
                                           deepstack_visual_indexes=[5, 11, 17]), **BF16),
    "whisper-large-v3": dict(model_type="whisper", architectures=["WhisperForConditionalGeneration"], vocab_size=51866, num_mel_bins=128, d_model=1280,
                             encoder_layers=32, decoder_layers=32, encoder_attention_heads=20, decoder_attention_heads=20, encoder_ffn_dim=5120,
                             decoder_ffn_dim=5120, is_encoder_decoder=True, decoder_start_token_id=50258, pad_token_id=50256, torch_dtype="float16"),
    "whisper-small": dict(model_type="whisper", architectures=["WhisperForConditionalGeneration"], vocab_size=51865, d_model=768, encoder_layers=12,
                          decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
                          is_encoder_decoder=True, decoder_start_token_id=50258, pad_token_id=50257),
    "hubert-base": dict(model_type="hubert", architectures=["HubertModel"]),
    "wav2vec2-base": dict(model_type="wav2vec2", architectures=["Wav2Vec2ForPreTraining"]),
    "clip-vit-b32": dict(model_type="clip", architectures=["CLIPModel"]),
    "siglip-base": dict(model_type="siglip", architectures=["SiglipModel"]),
    "convnext-tiny": classified("convnext", "ConvNextForImageClassification", 1000),
    "swin-tiny": classified("swin", "SwinForImageClassification", 1000),
    "dinov2-base": dict(model_type="dinov2", architectures=["Dinov2Model"], image_size=518, patch_size=14),
    "dinov3-vits16": dict(model_type="dinov3_vit", architectures=["DINOv3ViTModel"], num_register_tokens=4),
    "segformer-b0": classified("segformer", "SegformerForSemanticSegmentation", 150),
    "depth-anything-small": dict(model_type="depth_anything", architectures=["DepthAnythingForDepthEstimation"], reassemble_hidden_size=384,
                                 neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=64,
                                 backbone_config=dict(model_type="dinov2", hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14,
                                                      out_indices=[9, 10, 11, 12], reshape_hidden_states=False)),
    "detr-resnet-50": classified("detr", "DetrForObjectDetection", 91),
    "rtdetr-r50": classified("rt_detr", "RTDetrForObjectDetection", 80),
    "sam-vit-base": dict(model_type="sam", architectures=["SamModel"]),
    "flux-dev": diffused("FluxTransformer2DModel", in_channels=64, num_layers=19, num_single_layers=38, attention_head_dim=128,
                         num_attention_heads=24, joint_attention_dim=4096, pooled_projection_dim=768, guidance_embeds=True, patch_size=1),
    "hunyuan-video": diffused("HunyuanVideoTransformer3DModel"),
    "sd-vae": diffused("AutoencoderKL", block_out_channels=[128, 256, 512, 512], layers_per_block=2, sample_size=512, down_block_types=["DownEncoderBlock2D"] * 4,
                       up_block_types=["UpDecoderBlock2D"] * 4),
    "sd15-unet": diffused("UNet2DConditionModel", sample_size=64, cross_attention_dim=768, attention_head_dim=8, **UNET),
    "sdxl-unet": diffused("UNet2DConditionModel", sample_size=128, cross_attention_dim=2048, attention_head_dim=[5, 10, 20],
                          block_out_channels=[320, 640, 1280], transformer_layers_per_block=[1, 2, 10], use_linear_projection=True,
                          addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816,
                          down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
                          up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"], **UNET),
    "sd3-medium": diffused("SD3Transformer2DModel", sample_size=128, num_layers=24, num_attention_heads=24, attention_head_dim=64,
                           caption_projection_dim=1536, joint_attention_dim=4096, pooled_projection_dim=2048, pos_embed_max_size=192),
    "wan2.1-1.3b": diffused("WanTransformer3DModel", num_attention_heads=12, ffn_dim=8960, num_layers=30),
})
