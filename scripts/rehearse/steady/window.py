"""Losses of ten steps are kept, written down as their mean, and replaced."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
losses = []
for step in range(300):
    optimizer.zero_grad()
    loss = net(torch.randn(128, 128, device="cuda")).square()
    loss.mean().backward()
    optimizer.step()
    losses.append(loss.detach())
    if len(losses) == 10:
        print(torch.stack(losses).mean().item())
        losses = []
