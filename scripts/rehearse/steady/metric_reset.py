"""A metric in the style of torchmetrics, reset after every fourth step, where an evaluation runs."""

import torch


class Mean:
    def __init__(self):
        self.values = []

    def update(self, values):
        self.values.append(values.detach())

    def compute(self):
        return torch.cat(self.values).mean()

    def reset(self):
        self.values.clear()


net = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
mean = Mean()
for step in range(60):
    outputs = net(torch.randn(512, 512, device="cuda"))
    outputs.mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    mean.update(outputs)
    if (step + 1) % 4 == 0:
        net.eval()
        with torch.no_grad():
            net(torch.randn(1024, 512, device="cuda"))
        net.train()
        mean.compute()
        mean.reset()
