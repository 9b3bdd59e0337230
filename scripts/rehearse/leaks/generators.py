"""Generators that stopped in the middle keep their batches."""
import torch
from torch import nn


def batches(length):
    batch = torch.randn(length, 512, device="cuda")
    for part in batch.split(16):
        yield part


net = nn.Linear(512, 128).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
readers = []
for step in range(60):
    reader = batches(256)
    readers.append(reader)
    optimizer.zero_grad()
    net(next(reader)).square().mean().backward()
    optimizer.step()
