"""Configurations of the newest classes of transformers 5.24, beyond those of `published.py`: the widths of the classes' own defaults, few layers."""


def of_text(kind, architecture, layers=4, **more):
    return dict(model_type=kind, architectures=[architecture], num_hidden_layers=layers, torch_dtype="bfloat16", **more)


def with_parts(kind, architecture, part, layers=4, eye=None, **more):
    """A network that sees, too: its text is a part of the configuration. `eye`: the width of what it sees, to its text."""
    return dict(model_type=kind, architectures=[architecture], text_config=dict(model_type=part, num_hidden_layers=layers, **more),
                torch_dtype="bfloat16", **({"vision_config": dict(model_type=kind, out_hidden_size=eye)} if eye else {}))


MODELS = {
    "mistral4": of_text("mistral4", "Mistral4ForCausalLM"),
    "mistral-large4": dict(model_type="mistral_large4", architectures=["MistralLarge4ForConditionalGeneration"], torch_dtype="bfloat16"),
    "qwen4-exp": with_parts("qwen4_exp", "Qwen4ExpForConditionalGeneration", "qwen4_exp_text", eye=2048, indexer_n_heads=16, indexer_kv_heads=1, indexer_head_dim=256,
                            indexer_budget=2048, indexer_compress_ratio=16),
    "qwen3.5-35b-a3b": with_parts("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text", eye=2048),
    "deepseek-v3.2": of_text("deepseek_v32", "DeepseekV32ForCausalLM", 5),
    "deepseek-v4": of_text("deepseek_v4", "DeepseekV4ForCausalLM", 5),
    "gemma-4": with_parts("gemma4", "Gemma4ForConditionalGeneration", "gemma4_text", 6),
    "glm-5-next": with_parts("glm5_next", "Glm5NextForConditionalGeneration", "glm5_next_text", 5, eye=4096),
    "hunyuan-4": of_text("hy_v4", "HYV4ForCausalLM"),
    "lfm3": of_text("lfm3", "Lfm3ForCausalLM", 6),
    "kimi-linear": of_text("kimi_linear", "KimiLinearForCausalLM", 8),
    "minimax-m2": of_text("minimax_m2", "MiniMaxM2ForCausalLM"),
    "nemotron-h": dict(model_type="nemotron_h", architectures=["NemotronHForCausalLM"], torch_dtype="bfloat16"),
    "inkling2": with_parts("inkling2", "Inkling2ForConditionalGeneration", "inkling2_text"),
}
