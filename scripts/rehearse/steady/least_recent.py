"""Masks are cached for the four lengths that were used last."""
import functools

import torch
from torch import nn


@functools.lru_cache(maxsize=4)
def mask(length):
    return torch.ones(length, length, device="cuda").tril()


net = nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(80):
    length = 128 + 16 * (step * 5 % 7)
    out = mask(length) @ net(torch.randn(length, 64, device="cuda"))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
