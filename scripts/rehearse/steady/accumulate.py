"""Gradients of four batches are summed, and losses of the log are moved to the host."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
losses = []
for step in range(40):
    optimizer.zero_grad()
    for part in range(4):
        x, y = torch.randn(64, 256, device="cuda"), torch.randint(10, (64,), device="cuda")
        loss = nn.functional.cross_entropy(net(x), y) / 4
        loss.backward()
        losses.append(loss.item())
    optimizer.step()
