"""Predictions are kept on the card for a score at the end."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 5000)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
predicted, wanted = [], []
for step in range(60):
    x, y = torch.randn(256, 128, device="cuda"), torch.randint(5000, (256,), device="cuda")
    logits = net(x)
    loss = nn.functional.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    predicted.append(logits.detach().softmax(-1))
    wanted.append(y)
