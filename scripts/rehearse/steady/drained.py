"""A thread takes samples from a queue that holds four at most: it fills, and stays full."""
import queue
import threading

import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.Adam(net.parameters())
samples, may_take = queue.Queue(maxsize=4), threading.Semaphore(0)


def write():
    while True:
        may_take.acquire()
        samples.get().sum()


threading.Thread(target=write, daemon=True).start()
for step in range(60):
    x = torch.randn(512, 256, device="cuda")
    out = net(x)
    loss = (out - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step >= 4:
        may_take.release()
    samples.put(out.detach().tanh())
