"""A whole training step as a CUDA graph."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
x, y = torch.zeros(256, 1024, device="cuda"), torch.zeros(256, 1024, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
for _ in range(3):
    x.copy_(torch.rand(256, 1024))
    y.copy_(torch.rand(256, 1024))
    graph.replay()
print(loss.item())
