"""A small training that saves its weights and loads them again."""

import torch

network = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(network.parameters())
for step in range(5):
    rows, labels = torch.randn(64, 1024, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(network(rows), labels).backward()
    optimizer.step()
network.eval()
with torch.no_grad():
    network(rows)
torch.save(network.state_dict(), "model.pt")
network.load_state_dict(torch.load("model.pt"))
