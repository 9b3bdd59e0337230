"""Every tenth step is followed by an evaluation with larger batches, and every fifth by a checkpoint; nothing of them stays."""
import io

import torch
from torch import nn

net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())


def evaluate(batches=5):
    with torch.no_grad():
        for i in range(batches):
            out = net(torch.randn(1024, 128, device="cuda"))
            if i % 2 == 0:
                print(out.shape)


for step in range(1, 300):
    optimizer.zero_grad()
    net(torch.randn(128, 128, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 10 == 0:
        evaluate()
    if step % 5 == 0:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, io.BytesIO())
