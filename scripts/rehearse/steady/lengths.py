"""Batches of different lengths; the last output stays until the next."""
import random

import torch
from torch import nn

random.seed(3)
net = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(60):
    x = torch.randn(8, random.randrange(16, 256), 128, device="cuda")
    optimizer.zero_grad()
    out = net(x)
    out.square().mean().backward()
    optimizer.step()
