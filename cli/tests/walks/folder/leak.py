"""Trains a classifier of digits, and keeps what its last hidden layer gives for a picture of it."""

import torch
from torch import nn

layers = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()).cuda()
head = nn.Linear(2048, 10).cuda()
optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()])
points = []
for epoch in range(3):
    for _ in range(500):
        pictures, digits = torch.rand(512, 784).cuda(), torch.randint(0, 10, (512,)).cuda()
        hidden = layers(pictures)
        loss = nn.functional.cross_entropy(head(hidden), digits)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        points.append(hidden)
    print("epoch", epoch)
