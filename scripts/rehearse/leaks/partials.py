"""Work for later is put off, with the tensors that it needs."""
import functools

import torch
from torch import nn


class Logger:
    later = []

    @classmethod
    def put_off(cls, function, *args):
        cls.later.append(functools.partial(function, *args))


net = nn.Conv2d(3, 32, 3).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    out = net(torch.randn(8, 3, 32, 32, device="cuda"))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    Logger.put_off(torch.histc, out.detach())
