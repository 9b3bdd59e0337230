"""An exponential moving average that keeps every copy that it has made, for a plot of its weights."""

import torch


class Average:
    def __init__(self, net):
        self.shadow = {name: weight.detach().clone() for name, weight in net.named_parameters()}
        self.history = [self.shadow]

    def update(self, net):
        with torch.no_grad():
            self.shadow = {name: 0.99 * old + 0.01 * new for (name, old), new in zip(self.shadow.items(), net.parameters())}
        self.history.append(self.shadow)


net = torch.nn.Linear(1024, 512, bias=False).cuda()
optimizer = torch.optim.AdamW(net.parameters())
average = Average(net)
for _ in range(60):
    net(torch.randn(64, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update(net)
