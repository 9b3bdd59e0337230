"""The next batch is loaded while the last one is computed: two are there in turn."""
import torch
from torch import nn

net = nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
following = torch.randn(1024, 512).cuda()
for step in range(40):
    batch, following = following, torch.randn(512 + 256 * (step % 3), 512).cuda()
    optimizer.zero_grad()
    net(batch).square().mean().backward()
    optimizer.step()
    del batch
