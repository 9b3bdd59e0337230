"""Outputs of every third step are kept for a plot."""
import torch
from torch import nn

net = nn.Linear(128, 4096).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
kept = []
for step in range(60):
    out = net(torch.randn(64, 128, device="cuda"))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    if step % 3 == 0:
        kept.append(out.detach())
