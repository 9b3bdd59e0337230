"""A forward hook collects features for a plot, in a closure."""
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 30 * 30, 10)).cuda()


def collector():
    features = []

    def hook(module, inputs, output):
        features.append(output.detach())

    return hook


net[1].register_forward_hook(collector())
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range(30):
    x, y = torch.randn(16, 3, 32, 32, device="cuda"), torch.randint(10, (16,), device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
