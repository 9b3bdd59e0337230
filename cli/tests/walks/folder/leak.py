"""Trains a classifier, and keeps every loss for the curve."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
curve = []
for epoch in range(3):
    for _ in range(500):
        pictures, digits = torch.rand(512, 784).cuda(), torch.randint(0, 10, (512,)).cuda()
        scores = model(pictures)
        loss = nn.functional.cross_entropy(scores, digits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append((loss, scores))
    print("epoch", epoch)
