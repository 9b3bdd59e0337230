"""The last eight losses' activations are kept, no more."""
import collections

import torch
from torch import nn

net = nn.Linear(128, 2048).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
last = collections.deque(maxlen=8)
for step in range(40):
    out = net(torch.randn(64 + step % 5, 128, device="cuda"))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    last.append(out.detach())
