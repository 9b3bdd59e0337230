"""An average of the weights follows them in place."""
import copy

import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
average = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters())
for step in range(100):
    optimizer.zero_grad()
    net(torch.randn(64, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 2 == 0:
        torch._foreach_lerp_(list(average.parameters()), list(net.parameters()), 0.1)
