"""An average of the weights begins in the fifth step; a buffer for the loss of each part is made in the third."""
import copy

import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
average, parts = None, {}
for step in range(40):
    x, y = torch.randn(64, 128, device="cuda"), torch.randint(10, (64,), device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
    if step == 2:
        parts["all"] = torch.zeros(4, 1 << 18, device="cuda")
    if step == 4:
        average = copy.deepcopy(net)
