"""Pictures of varying sizes with cuDNN's trials, and a line every twentieth step."""
import torch
from torch import nn

torch.backends.cudnn.benchmark = True
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(200):
    size = (32, 48, 64)[step * 2 % 3]
    optimizer.zero_grad()
    loss = net(torch.randn(8, 3, size, size, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(float(loss))
