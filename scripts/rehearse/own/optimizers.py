"""One network after the other, each with another optimizer: one by one, through lists, fused, with and without states."""

import torch
from torch import nn

KINDS = [
    (torch.optim.SGD, {"lr": 0.1}), (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}), (torch.optim.SGD, {"lr": 0.1, "fused": True}),
    (torch.optim.Adam, {}), (torch.optim.Adam, {"foreach": False, "amsgrad": True}), (torch.optim.AdamW, {"fused": True}),
    (torch.optim.RMSprop, {"centered": True}), (torch.optim.Adagrad, {}), (torch.optim.NAdam, {}), (torch.optim.Adafactor, {}),
]
for kind, settings in KINDS:
    model = nn.Sequential(nn.Linear(256, 768), nn.GELU(), nn.LayerNorm(768), nn.Linear(768, 256)).cuda()
    optimizer = kind(model.parameters(), **settings)  # type: ignore[arg-type]
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.rand(64, 256, device="cuda")).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
