"""A line is printed every hundredth step."""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(1000):
    x, y = torch.randn(128, 128, device="cuda"), torch.randint(10, (128,), device="cuda")
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
