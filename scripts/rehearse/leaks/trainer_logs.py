"""A Trainer calls its callbacks with the state of each step, and one of them puts the loss, with its graph, into the history."""

import collections

import torch


class Trainer:
    def __init__(self, net, callbacks):
        self.net, self.callbacks = net, callbacks
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def train(self, steps):
        for step in range(steps):
            inputs = torch.randn(256, 1024, device="cuda")
            loss = self.net(inputs).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            for callback in self.callbacks:
                callback.on_step_end(step, loss=loss, inputs=inputs)


class History:
    def __init__(self):
        self.logs = collections.defaultdict(list)

    def on_step_end(self, step, **values):
        for name, value in values.items():
            self.logs[name].append(value)


net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 16)).cuda()
Trainer(net, [History()]).train(60)
