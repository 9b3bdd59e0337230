"""A callback of a trainer keeps the logits of every fourth step."""
import types

import torch
from torch import nn


class KeepLogits:
    def __init__(self, every):
        self.every, self.logits = every, []

    def on_step_end(self, state, logits):
        if state.global_step % self.every == 0:
            self.logits.append(logits.detach())


class Trainer:
    def __init__(self, net, callbacks):
        self.net, self.callbacks = net, callbacks
        self.optimizer = torch.optim.AdamW(net.parameters())
        self.state = types.SimpleNamespace(global_step=0)

    def training_step(self, batch):
        logits = self.net(batch)
        logits.square().mean().backward()
        return logits

    def fit(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            logits = self.training_step(torch.randn(64, 128, device="cuda"))
            self.optimizer.step()
            self.state.global_step += 1
            for callback in self.callbacks:
                callback.on_step_end(self.state, logits)


Trainer(nn.Linear(128, 4096).cuda(), [KeepLogits(every=4)]).fit(100)
