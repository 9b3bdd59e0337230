"""Batches that fail are caught, counted and forgotten."""
import torch
from torch import nn

net = nn.Linear(128, 512).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
failed, last = 0, None
for step in range(60):
    x = torch.randn(64, 128, device="cuda")
    try:
        if step % 2:
            net(x[:, :100])
    except RuntimeError as error:
        failed, last = failed + 1, str(error)
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
