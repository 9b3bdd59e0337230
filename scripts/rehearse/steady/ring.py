"""A replay buffer of eight entries that is written in turn, and drawn from."""

import torch


class Ring:
    def __init__(self, size):
        self.size, self.entries, self.next = size, [], 0

    def push(self, entry):
        if len(self.entries) < self.size:
            self.entries.append(entry)
        else:
            self.entries[self.next] = entry
        self.next = (self.next + 1) % self.size

    def draw(self):
        return torch.cat(self.entries[-2:])


net = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.Adam(net.parameters())
ring = Ring(8)
for _ in range(60):
    ring.push(torch.randn(256, 256, device="cuda"))
    net(ring.draw()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
