"""An average of the weights is copied on the card every fifth step, and no copy is ever let go of."""
import copy

import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
average = copy.deepcopy(net)
optimizer = torch.optim.Adam(net.parameters())
copies, step = [], 0
while step < 200:
    x, y = torch.randn(64, 256, device="cuda"), torch.randint(10, (64,), device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
    with torch.no_grad():
        for mean, weight in zip(average.parameters(), net.parameters()):
            mean.lerp_(weight, 0.1)
    step += 1
    if step % 5 == 0:
        copies.append(copy.deepcopy(average.state_dict()))
