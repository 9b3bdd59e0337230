"""A trainer's loop: gradients accumulated over batches, a schedule, evaluation, and a checkpoint."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.rand(512, 128), torch.randint(10, (512,)))
model = nn.Sequential(nn.Linear(128, 1024), nn.Tanh(), nn.Dropout(0.1), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
for number, (x, y) in enumerate(DataLoader(data, batch_size=32, shuffle=True, pin_memory=True)):
    loss = nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True)) / 4
    loss.backward()
    if number % 4 == 3:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
model.eval()
with torch.no_grad():
    right = sum((model(x.cuda()).argmax(1) == y.cuda()).sum().item() for x, y in DataLoader(data, batch_size=128))
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
print(right)
