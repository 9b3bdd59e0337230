"""A buffer of at most fifty pictures, as of a CycleGAN: it is a list, and still fills in the first steps."""
import random

import torch
from torch import nn


class Pool:
    def __init__(self, most):
        self.most, self.kept = most, []

    def query(self, picture):
        if len(self.kept) < self.most:
            self.kept.append(picture)
            return picture
        at = random.randrange(self.most)
        old, self.kept[at] = self.kept[at], picture
        return old


net, pool = nn.Conv2d(3, 3, 3, padding=1).cuda(), Pool(50)
optimizer = torch.optim.Adam(net.parameters())
for step in range(80):
    made = net(torch.randn(1, 3, 128, 128, device="cuda"))
    pool.query(made.detach())
    optimizer.zero_grad()
    made.square().mean().backward()
    optimizer.step()
