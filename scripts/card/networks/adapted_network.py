"""A language model of transformers with adapters of PEFT and AdamW: python adapted_network.py gpt2|llama BATCH LENGTH [autocast|bfloat16] [checkpointed] [dora]"""

import contextlib
import sys

import peft
import torch
import transformers

kind, batch, length, *words = sys.argv[1:]
shapes = {
    "gpt2": (transformers.GPT2LMHeadModel, transformers.GPT2Config(), ["c_attn"]),
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8,
                                                                     num_attention_heads=16, num_key_value_heads=4), ["q_proj", "v_proj"]),
}
make, config, targets = shapes[kind]
network = make(config)
if "bfloat16" in words:
    network = network.to(torch.bfloat16)
if "checkpointed" in words:
    network.gradient_checkpointing_enable()
    network.enable_input_require_grads()
network = peft.get_peft_model(network, peft.LoraConfig(r=16, target_modules=targets, lora_dropout=0.05, use_dora="dora" in words, fan_in_fan_out=kind == "gpt2")).cuda().train()
optimizer = torch.optim.AdamW([weight for weight in network.parameters() if weight.requires_grad], lr=1e-4)
for _ in range(4):
    ids = torch.randint(10, config.vocab_size, (int(batch), int(length)), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16) if "autocast" in words else contextlib.nullcontext():
        loss = network(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
