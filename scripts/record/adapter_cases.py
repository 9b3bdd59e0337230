#!/usr/bin/env python3
"""Prints the cases of the families `adapters` and `quantized`: small networks of transformers with adapters of PEFT, and with weights of bitsandbytes.

    python scripts/record/adapter_cases.py adapters > CASES.json
    python scripts/record/record.py models adapters --cases CASES.json --vramlab PROGRAM --into lab/imports/tests/golden/models"""
import json
import sys

LLAMA = {"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64}
QWEN2, QWEN3, MISTRAL = ({**LLAMA, "model_type": name} for name in ("qwen2", "qwen3", "mistral"))
GEMMA = {**LLAMA, "model_type": "gemma", "head_dim": 16}
PHI3 = {**LLAMA, "model_type": "phi3", "pad_token_id": 0, "num_key_value_heads": 4}
GPT2 = {"model_type": "gpt2", "vocab_size": 512, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 1}
BERT = {"model_type": "bert", "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
        "max_position_embeddings": 64}
NEOX = {"model_type": "gpt_neox", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 64}
# Wide enough for every sort of kernel of bitsandbytes.
WIDE = {"model_type": "llama", "vocab_size": 1024, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 4, "max_position_embeddings": 1024}
CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "mistral": "MistralForCausalLM",
           "gemma": "GemmaForCausalLM", "phi3": "Phi3ForCausalLM", "gpt2": "GPT2LMHeadModel", "bert": "BertForMaskedLM", "gpt_neox": "GPTNeoXForCausalLM"}
ALL = {"r": 16, "target_modules": "all-linear"}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16"}
TWICE = {**NF4, "bnb_4bit_use_double_quant": True}


def case(name, config, lora=None, batch=2, seq=48, kind=None, **options):
    """One case."""
    more = {"lora": lora} if lora else {}
    return {"name": name, "class": kind or CLASSES[config["model_type"]], "config": config, "batch": batch, "seq": seq, "options": {**more, **options}}


BLOCKS = {"gradient_checkpointing": True}
ADAPTERS = [
    case("llama checkpointed", LLAMA, {"r": 8}, **BLOCKS),
    case("llama all checkpointed", LLAMA, ALL, **BLOCKS),
    case("llama all checkpointed bf16", LLAMA, ALL, precision="bf16", **BLOCKS),
    case("llama all autocast", LLAMA, ALL, precision="autocast"),
    case("llama all autocast checkpointed", LLAMA, ALL, precision="autocast", **BLOCKS),
    case("llama all bf16 autocast", LLAMA, ALL, precision="bf16_autocast"),
    case("llama all bf16 autocast checkpointed", LLAMA, ALL, precision="bf16_autocast", **BLOCKS),
    case("llama all bf16", LLAMA, ALL, precision="bf16"),
    case("llama all fp16", LLAMA, ALL, precision="fp16"),
    case("llama dropout checkpointed", LLAMA, {"r": 8, "lora_dropout": 0.05}, **BLOCKS),
    case("llama rslora", LLAMA, {**ALL, "use_rslora": True}, precision="bf16", **BLOCKS),
    case("llama eager checkpointed", LLAMA, ALL, attn_implementation="eager", **BLOCKS),
    case("llama wide checkpointed", WIDE, ALL, seq=512, precision="bf16", **BLOCKS),
    case("qwen2 all checkpointed", QWEN2, ALL, **BLOCKS),
    case("qwen3 all checkpointed bf16", QWEN3, ALL, precision="bf16", **BLOCKS),
    case("mistral all autocast", MISTRAL, ALL, precision="autocast"),
    case("gemma all checkpointed", GEMMA, ALL, **BLOCKS),
    case("gemma all bf16", GEMMA, ALL, precision="bf16"),
    case("phi3 all checkpointed bf16", PHI3, ALL, precision="bf16", **BLOCKS),
    case("gpt2 all checkpointed", GPT2, ALL, **BLOCKS),
    case("gpt2 autocast", GPT2, {"r": 8}, precision="autocast"),
    case("gpt2 all autocast checkpointed", GPT2, ALL, precision="autocast", **BLOCKS),
    case("bert all checkpointed", BERT, ALL, **BLOCKS),
    case("bert all autocast", BERT, ALL, precision="autocast"),
    case("bert all bf16", BERT, ALL, precision="bf16"),
    case("gpt_neox all checkpointed", NEOX, ALL, **BLOCKS),
    case("gpt_neox autocast", NEOX, {"r": 8}, precision="autocast"),
]
DORA = [
    case("llama", LLAMA, {"r": 8, "use_dora": True}),
    case("llama all", LLAMA, {**ALL, "use_dora": True}),
    case("llama all checkpointed", LLAMA, {**ALL, "use_dora": True}, **BLOCKS),
    case("llama all bf16", LLAMA, {**ALL, "use_dora": True}, precision="bf16"),
    case("llama all bf16 checkpointed", LLAMA, {**ALL, "use_dora": True}, precision="bf16", **BLOCKS),
    case("llama all autocast", LLAMA, {**ALL, "use_dora": True}, precision="autocast"),
    case("llama dropout", LLAMA, {"r": 8, "use_dora": True, "lora_dropout": 0.1}, **BLOCKS),
    case("qwen2 all", QWEN2, {**ALL, "use_dora": True}),
    case("bert all", BERT, {**ALL, "use_dora": True}),
    case("gpt2 all", GPT2, {**ALL, "use_dora": True}),
]
QUANTIZED = [
    case("llama nf4", LLAMA, ALL, quantization=NF4, precision="bf16"),
    case("llama nf4 checkpointed", LLAMA, ALL, quantization=NF4, precision="bf16", **BLOCKS),
    case("llama nf4 twice", LLAMA, ALL, quantization=TWICE, precision="bf16"),
    case("llama nf4 twice checkpointed", LLAMA, ALL, quantization=TWICE, precision="bf16", **BLOCKS),
    case("llama fp4", LLAMA, ALL, quantization={**NF4, "bnb_4bit_quant_type": "fp4"}, precision="bf16"),
    case("llama nf4 two layers", LLAMA, {"r": 8}, quantization=NF4, precision="bf16", **BLOCKS),
    case("llama nf4 autocast", LLAMA, ALL, quantization=NF4, precision="bf16_autocast"),
    case("llama nf4 autocast checkpointed", LLAMA, ALL, quantization=TWICE, precision="bf16_autocast", **BLOCKS),
    case("llama nf4 fp16", LLAMA, ALL, quantization={**NF4, "bnb_4bit_compute_dtype": "float16"}, precision="fp16"),
    case("wide nf4", WIDE, ALL, quantization=NF4, precision="bf16", seq=512),
    case("wide nf4 twice checkpointed", WIDE, ALL, quantization=TWICE, precision="bf16", seq=1024, **BLOCKS),
    case("wide nf4 twice", WIDE, ALL, quantization=TWICE, precision="bf16", batch=1, seq=64),
    case("qwen2 nf4 checkpointed", QWEN2, ALL, quantization=NF4, precision="bf16", **BLOCKS),
    case("qwen3 nf4 twice", QWEN3, ALL, quantization=TWICE, precision="bf16"),
    case("gemma nf4 checkpointed", GEMMA, ALL, quantization=NF4, precision="bf16", **BLOCKS),
    case("phi3 nf4", PHI3, ALL, quantization=NF4, precision="bf16"),
    case("llama nf4 dropout", LLAMA, {**ALL, "lora_dropout": 0.05}, quantization=NF4, precision="bf16", **BLOCKS),
    case("llama nf4 dora", LLAMA, {**ALL, "use_dora": True}, quantization=NF4, precision="bf16"),
    case("llama nf4 twice dora checkpointed", LLAMA, {**ALL, "use_dora": True}, quantization=TWICE, precision="bf16", **BLOCKS),
    case("wide nf4 dora checkpointed", WIDE, {**ALL, "use_dora": True}, quantization=TWICE, precision="bf16", seq=512, **BLOCKS),
    case("llama int8", LLAMA, ALL, quantization={"load_in_8bit": True}, precision="bf16"),
    case("llama int8 checkpointed", LLAMA, ALL, quantization={"load_in_8bit": True}, precision="bf16", **BLOCKS),
    case("llama int8 fp16", LLAMA, ALL, quantization={"load_in_8bit": True}, precision="fp16"),
    case("wide int8 checkpointed", WIDE, ALL, quantization={"load_in_8bit": True}, precision="bf16", seq=512, **BLOCKS),
    case("qwen2 int8", QWEN2, {"r": 8}, quantization={"load_in_8bit": True}, precision="bf16"),
    case("llama int8 autocast", LLAMA, ALL, quantization={"load_in_8bit": True}, precision="bf16_autocast"),
]
BY_TRAINER = {"loop": "trainer", "optimizer": "adamw_torch_fused: AdamW(lr=5e-5, fused=True)", "use_cache": False}
TRAINER = [
    case("llama", LLAMA, ALL, **BY_TRAINER),
    case("llama checkpointed", LLAMA, {"r": 8}, **BY_TRAINER, **BLOCKS),
    case("llama autocast", LLAMA, ALL, precision="autocast", **BY_TRAINER),
    case("llama bf16 autocast checkpointed", LLAMA, ALL, precision="bf16_autocast", **BY_TRAINER, **BLOCKS),
    case("qwen2 bf16 autocast", QWEN2, ALL, precision="bf16_autocast", **BY_TRAINER),
    case("gpt2 autocast", GPT2, {"r": 8}, precision="autocast", **BY_TRAINER),
    case("bert autocast", BERT, ALL, precision="autocast", **BY_TRAINER),
    case("llama dora autocast checkpointed", LLAMA, {**ALL, "use_dora": True}, precision="bf16_autocast", **BY_TRAINER, **BLOCKS),
]
FAMILIES = {"adapters_trainer": TRAINER, "adapters": ADAPTERS, "dora": DORA, "quantized": QUANTIZED}

if __name__ == "__main__":
    json.dump(FAMILIES[sys.argv[1]], sys.stdout)
