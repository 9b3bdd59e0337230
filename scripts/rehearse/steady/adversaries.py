"""A generator and a discriminator take turns; a graph is retained until the second loss has used it."""
import torch
from torch import nn

generator = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 784)).cuda()
critic = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 1)).cuda()
optimizers = [torch.optim.Adam(net.parameters()) for net in (generator, critic)]
history = []
for step in range(90):
    made = generator(torch.randn(64, 64, device="cuda"))
    scores = critic(made)
    for optimizer in optimizers:
        optimizer.zero_grad()
    scores.mean().backward(retain_graph=True)
    optimizers[0].step()
    loss = critic(torch.randn(64, 784, device="cuda")).mean() - critic(made.detach()).mean()
    loss.backward()
    optimizers[1].step()
    history.append(loss.item())
    if step % 30 == 0:
        history = history[-100:]
