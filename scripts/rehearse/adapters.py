#!/usr/bin/env python3
"""Trains adapters on a network that `from_pretrained` loads, as people do; and says what `vramlab predict` of its configuration must say.

    python scripts/rehearse/adapters.py make FOLDER            writes a Qwen 3 of 0.8 billion parameters with random weights (1.5 GB)
    vramlab predict --gpu rtx4090 -- python scripts/rehearse/adapters.py train FOLDER 4 blocks
    vramlab predict FOLDER/config.json --sequence 1024 --gpu rtx4090 --lora 8 --lora-target all-linear --load-in-4bit --checkpoint blocks

The last two words of `train`: bits of the weights (4, 8, 16), and `blocks` or `none`, what is recomputed."""

import sys

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Qwen3Config, Qwen3ForCausalLM

SIZES = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 10,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 64000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
TOKENS, STEPS = 1024, 6


def make(folder):
    model = Qwen3ForCausalLM._from_config(Qwen3Config(**SIZES), dtype=torch.bfloat16)
    model.save_pretrained(folder)


def quantization(bits):
    if bits == 4:
        return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    return BitsAndBytesConfig(load_in_8bit=True) if bits == 8 else None


def train(folder, bits, recomputed):
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, device_map={"": 0}, quantization_config=quantization(bits))
    if bits < 16:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM")).train()
    if recomputed == "blocks":
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    optimizer = torch.optim.AdamW((parameter for parameter in model.parameters() if parameter.requires_grad), lr=1e-4)
    for _ in range(STEPS):
        tokens, labels = (torch.randint(0, SIZES["vocab_size"], (1, TOKENS)).cuda() for _ in range(2))
        optimizer.zero_grad()
        outputs = model(input_ids=tokens, labels=labels)
        outputs.loss.backward()
        optimizer.step()


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        train(sys.argv[2], int(sys.argv[3]), sys.argv[4])
