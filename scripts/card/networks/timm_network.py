"""A network of timm with AdamW: python timm_network.py NAME BATCH [autocast] [channels_last]"""

import contextlib
import sys

import timm
import torch

name, batch, *words = sys.argv[1:]
layout = torch.channels_last if "channels_last" in words else torch.contiguous_format
model = timm.create_model(name, pretrained=False).cuda().to(memory_format=layout)
side = model.default_cfg["input_size"][-1]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(4):
    images = torch.rand(int(batch), 3, side, side).cuda(non_blocking=True).to(memory_format=layout)
    labels = torch.randint(1000, (int(batch),)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16) if "autocast" in words else contextlib.nullcontext():
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
