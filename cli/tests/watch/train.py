"""Trains: so many steps, each of which keeps so many bytes."""

import sys
import time

import torch
from torch.optim.optimizer import Optimizer

optimizer = Optimizer()
for _ in range(int(sys.argv[1])):
    torch.allocate(int(sys.argv[2]))
    time.sleep(0.01)
    optimizer.step()
print("trained")
