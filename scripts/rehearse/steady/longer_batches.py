"""Each batch is longer than the one before it, up to a length."""
import torch
from torch import nn

net = nn.Linear(256, 1024).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(80):
    x = torch.randn(min(16 + 16 * step, 1024), 256, device="cuda")
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
