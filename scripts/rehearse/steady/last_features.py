"""A forward hook keeps the features of the last pass of each layer, under the layer's name."""
import torch
from torch import nn

features = {}
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.Flatten(), nn.Linear(32 * 28 * 28, 10)).cuda()
for name, layer in net.named_children():
    layer.register_forward_hook(lambda module, inputs, output, name=name: features.update({name: output.detach()}))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range(60):
    x, y = torch.randn(16, 3, 32, 32, device="cuda"), torch.randint(10, (16,), device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
