"""An evaluation every eighth step keeps its predictions on the card."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 1000)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
history = []


def evaluate():
    net.eval()
    with torch.no_grad():
        predictions = [net(torch.randn(128, 128, device="cuda")) for _ in range(4)]
    net.train()
    return predictions


for iteration in range(200):
    optimizer.zero_grad()
    net(torch.randn(128, 128, device="cuda")).square().mean().backward()
    optimizer.step()
    if (iteration + 1) % 8:
        continue
    history.extend(evaluate())
