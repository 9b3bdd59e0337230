"""Gradients of eight batches are summed, and the optimizer steps with every eighth."""
import torch
from torch import nn

accumulation = 8
net = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for i in range(400):
    x, y = torch.randn(64, 256, device="cuda"), torch.randint(10, (64,), device="cuda")
    (nn.functional.cross_entropy(net(x), y) / accumulation).backward()
    if (i + 1) % accumulation == 0:
        optimizer.step()
        optimizer.zero_grad()
