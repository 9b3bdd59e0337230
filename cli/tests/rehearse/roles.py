"""A training whose memory can be counted by hand: eight layers with momentum, or with steps made by hand."""

import sys

import torch

by_hand = "by-hand" in sys.argv
network = torch.nn.ModuleList(torch.nn.Linear(512, 512, bias=False) for _ in range(8)).cuda()
optimizer = None if by_hand else torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
for step in range(3):
    x = rows = torch.randn(4096, 512).cuda()
    for layer in network:
        x = torch.tanh(layer(x))
    (x * 2).sum().backward()
    if optimizer:
        optimizer.step()
        optimizer.zero_grad()
    else:
        with torch.no_grad():
            for parameter in network.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    del x, rows
