"""Errors are kept for a report, and with them the frames that hold tensors."""
import torch
from torch import nn

net = nn.Linear(128, 2048).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
errors = []


def check(out):
    copy = out.detach().clone()
    raise ValueError("the batch %s is odd" % (tuple(copy.shape),))


for step in range(50):
    out = net(torch.randn(256, 128, device="cuda"))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    try:
        check(out)
    except ValueError as error:
        errors.append(error)
