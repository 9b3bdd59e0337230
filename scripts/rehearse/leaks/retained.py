"""Losses are kept with their graphs, which `retain_graph` leaves whole."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 1024), nn.Tanh(), nn.Linear(1024, 1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
losses = []
for step in range(60):
    loss = net(torch.randn(128, 128, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    losses.append(loss)
