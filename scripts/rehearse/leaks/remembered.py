"""A function remembers its results by its arguments, and an argument is a new tensor in each step."""
import functools

import torch
from torch import nn


@functools.lru_cache(maxsize=None)
def positions(lengths):
    return torch.arange(4096, device="cuda").float().outer(lengths.float()).sin()


net = nn.Linear(64, 256).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    lengths = torch.randint(1, 100, (256,), device="cuda")
    x = torch.randn(4096, 64, device="cuda")
    loss = (net(x) * positions(lengths)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
