"""One tensor holds all outputs: it is made anew in every step, and larger."""
import torch
from torch import nn

net = nn.Linear(64, 1024).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
everything = torch.empty(0, 1024, device="cuda")
for step in range(50):
    out = net(torch.randn(256, 64, device="cuda"))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    everything = torch.cat([everything, out.detach()])
