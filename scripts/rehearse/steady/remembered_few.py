"""A function remembers its last six results; lengths come from ten."""
import functools
import random

import torch
from torch import nn

random.seed(1)


@functools.lru_cache(maxsize=6)
def positions(length):
    return torch.arange(length, device="cuda").float().outer(torch.arange(256, device="cuda").float()).sin()


net = nn.Linear(64, 256).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    length = 256 * random.randrange(1, 11)
    x = torch.randn(length, 64, device="cuda")
    loss = (net(x) * positions(length)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
