"""Outputs of batches of different lengths are kept in an attribute."""
import random

import torch
from torch import nn

random.seed(1)


class Trainer:
    def __init__(self):
        self.net = nn.Linear(64, 4096).cuda()
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.outputs = []

    def step(self, length):
        out = self.net(torch.randn(length, 64, device="cuda"))
        self.optimizer.zero_grad()
        out.square().mean().backward()
        self.optimizer.step()
        self.outputs.append(out.detach().half())


def main():
    trainer = Trainer()
    for step in range(50):
        trainer.step(random.randrange(64, 512))


main()
