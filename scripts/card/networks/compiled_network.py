"""A compiled network with a fused AdamW: python compiled_network.py resnet50|vit_b_16|gpt2 BATCH [autocast] [reduce-overhead]"""

import contextlib
import sys

import torch
import torchvision
import transformers

kind, words = sys.argv[1], sys.argv[3:]
batch = int(sys.argv[2])
is_language = kind == "gpt2"
model = (transformers.GPT2LMHeadModel(transformers.GPT2Config()) if is_language else torchvision.models.get_model(kind, weights=None)).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


@torch.compile(mode="reduce-overhead" if "reduce-overhead" in words else "default")
def loss_of(inputs, labels):
    if is_language:
        return model(input_ids=inputs, labels=labels).loss
    return torch.nn.functional.cross_entropy(model(inputs), labels)


for _ in range(4):
    inputs = torch.randint(50000, (batch, 512), device="cuda") if is_language else torch.rand(batch, 3, 224, 224, device="cuda")
    labels = inputs if is_language else torch.randint(1000, (batch,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16) if "autocast" in words else contextlib.nullcontext():
        loss = loss_of(inputs, labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
