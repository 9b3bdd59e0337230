"""A running total keeps the graph of every validation loss."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 2048), nn.Tanh(), nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters())
total = torch.zeros((), device="cuda")
for step in range(50):
    x, y = torch.randn(512, 256, device="cuda"), torch.randint(10, (512,), device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
    validation = nn.functional.cross_entropy(net(torch.randn(512, 256, device="cuda")), y)
    total = total + validation
