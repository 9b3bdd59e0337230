"""Losses are kept as tensors for a plot: a number a step, which no card will feel."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 1)).cuda()
optimizer = torch.optim.Adam(net.parameters())
losses = []
for step in range(40):
    optimizer.zero_grad()
    loss = net(torch.randn(256, 256, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
