"""A dictionary of metrics has the logits of each step under a name of its own."""
import torch
from torch import nn

metrics = {}
net = nn.Linear(128, 2048).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    logits = net(torch.randn(64, 128, device="cuda"))
    optimizer.zero_grad()
    loss = logits.square().mean()
    loss.backward()
    optimizer.step()
    metrics[f"train/{step}/loss"] = loss.item()
    metrics[f"train/{step}/logits"] = logits.detach()
