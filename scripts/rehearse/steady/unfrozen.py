"""Layers are unfrozen one by one from the last one on, each second step: gradients and states come, until all six train."""
import torch
from torch import nn

layers = [nn.Linear(512, 512) for _ in range(6)]
net = nn.Sequential(*layers).cuda()
net.requires_grad_(False)
optimizer = torch.optim.AdamW(net.parameters())
for step in range(60):
    if step % 2 == 0 and step // 2 < len(layers):
        layers[-1 - step // 2].requires_grad_(True)
    x = torch.randn(128, 512, device="cuda")
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
