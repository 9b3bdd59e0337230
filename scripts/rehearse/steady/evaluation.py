"""An evaluation in every fourth step keeps its logits until the next one, and the best weights."""
import copy

import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 1000)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
best = None
for step in range(40):
    x, y = torch.randn(128, 128, device="cuda"), torch.randint(1000, (128,), device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
    if step % 4 == 3:
        net.eval()
        with torch.no_grad():
            logits = torch.cat([net(torch.randn(128, 128, device="cuda")) for _ in range(4)])
        best = copy.deepcopy(net.state_dict())
        net.train()
