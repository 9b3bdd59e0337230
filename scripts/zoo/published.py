"""Configurations of 99 models that people use, from their publishers' figures; `count.py` asks `vramlab predict` about each.

A field that is absent has the value of transformers' own class. Networks whose configuration the program knows by name are only named.
"""

import json
import os
from typing import Any

from networks import NETWORKS, decoder

# Known to the program by name: their `config.json` is that of `lab/imports/known/models.json`.
KNOWN = """bert-base flan-t5-base gemma-7b llama-3.1-8b llama-3.2-1b llama-3.2-3b mistral-7b-v0.3 mistral-nemo-12b phi-3-mini-4k phi-4 phi-4-mini
qwen2.5-0.5b qwen2.5-7b qwen3-0.6b qwen3-8b r1-distill-qwen-1.5b roberta-large smollm2-135m t5-small tinyllama-1.1b vit-base
all-minilm-l6 bge-base-en e5-large-v2 bge-m3 multilingual-e5-base falcon3-7b ministral-8b qwen3-embedding-0.6b""".split()

# Those that a Python builds, and that the program knows by their names on the hub: `lab/imports/known/published.json`.
BY_NAME = """gte-modernbert-base mpnet-base electra-base esm2-650m deberta-v3-base bart-base nllb-200-600m mt5-small chronos-t5-small timesfm-2.0-500m command-r7b
deepseek-v2-lite deepseek-v3 gemma-2-9b gemma-3-4b gemma-3n-e2b glm-4-9b glm-4.5-air olmo-3-7b phi-3.5-moe qwen3-next-80b-a3b llama-4-scout
falcon-h1-0.5b granite-4.0-h-micro jamba-1.5-mini lfm2-1.2b mamba-130m rwkv-4-169m llava-1.5-7b mistral-small-3.1-24b paligemma-3b qwen2.5-vl-7b
qwen3-vl-4b whisper-large-v3 whisper-small hubert-base wav2vec2-base clip-vit-b32 siglip-base convnext-tiny swin-tiny dinov2-base dinov3-vits16
segformer-b0 depth-anything-small detr-resnet-50 rtdetr-r50 sam-vit-base sd-vae""".split()
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def diffused(name, **more):
    return dict(_class_name=name, _diffusers_version="0.30.0", **more)


UNET = dict(in_channels=4, out_channels=4, layers_per_block=2)

MODELS: dict[str, Any] = {name: name for name in KNOWN}
with open(os.path.join(ROOT, "lab", "imports", "known", "published.json"), encoding="utf-8") as listed:
    MODELS.update({one["name"]: one["files"]["config.json"] for one in json.load(listed) if one["name"] in BY_NAME})
# Recorded networks that the 99 do not have, or have above.
OTHERS = """gemma-2-2b gemma-2-9b gpt-oss-120b granite-3.3-8b modernbert-large olmo-2-13b olmo-2-1b olmo-3-7b qwen3-235b-a22b""".split()
MODELS.update({name: config for name, (config, _, _) in NETWORKS.items() if name not in OTHERS})
MODELS.update({
    "llama-3.3-70b": decoder("llama", "LlamaForCausalLM", 128256, 8192, 28672, 80, 64, 8, 131072, rope_theta=500000.0, rms_norm_eps=1e-5),
    "r1-distill-llama-8b": decoder("llama", "LlamaForCausalLM", 128256, 4096, 14336, 32, 32, 8, 131072, rope_theta=500000.0, rms_norm_eps=1e-5),
    "qwen2.5-coder-32b": decoder("qwen2", "Qwen2ForCausalLM", 152064, 5120, 27648, 64, 40, 8, 32768, rope_theta=1000000.0, use_sliding_window=False,
                                 max_window_layers=70, sliding_window=131072, rms_norm_eps=1e-6),
    "mamba2-130m": dict(model_type="mamba2", architectures=["Mamba2ForCausalLM"], vocab_size=50288, hidden_size=768, num_hidden_layers=24,
                        num_heads=24, head_dim=64, n_groups=1, tie_word_embeddings=True),
    "flux-dev": diffused("FluxTransformer2DModel", in_channels=64, num_layers=19, num_single_layers=38, attention_head_dim=128,
                         num_attention_heads=24, joint_attention_dim=4096, pooled_projection_dim=768, guidance_embeds=True, patch_size=1),
    "hunyuan-video": diffused("HunyuanVideoTransformer3DModel"),
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
