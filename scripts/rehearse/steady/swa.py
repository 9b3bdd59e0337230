"""An averaged model that is updated in place, and a deep copy of the best weights so far."""

import copy

import torch

net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.BatchNorm1d(256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
optimizer = torch.optim.AdamW(net.parameters())
best = None
for step in range(60):
    net(torch.randn(128, 256, device="cuda")).logsumexp(-1).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update_parameters(net)
    if step % 3 == 2:
        best = copy.deepcopy(net.state_dict())
