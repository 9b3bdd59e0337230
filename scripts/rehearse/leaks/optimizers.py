"""Each epoch's optimizer is kept, with its states."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
optimizers = []
for epoch in range(30):
    optimizer = torch.optim.AdamW(net.parameters())
    optimizers.append(optimizer)
    for step in range(2):
        optimizer.zero_grad()
        net(torch.randn(64, 256, device="cuda")).square().mean().backward()
        optimizer.step()
