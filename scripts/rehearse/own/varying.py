"""Batches of other lengths in every step, a cache that is emptied in between, an average of the weights, and generation."""

import torch
from torch import nn

table, cell, head = nn.Embedding(500, 192).cuda(), nn.TransformerEncoderLayer(192, 6, 768, batch_first=True).cuda(), nn.Linear(192, 500).cuda()
parameters = [p for module in (table, cell, head) for p in module.parameters()]
average = [p.detach().clone() for p in parameters]
optimizer = torch.optim.AdamW(parameters, lr=1e-3)
for number, length in enumerate((64, 200, 17, 128, 320, 96)):
    tokens = torch.randint(500, (8, length + 1)).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        scores = head(cell(table(tokens[:, :-1])))
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    torch._foreach_lerp_(average, [p.detach() for p in parameters], 0.1)
    if number % 2:
        del scores, loss
        torch.cuda.empty_cache()
cell.eval()
tokens = torch.zeros(4, 1, dtype=torch.long, device="cuda")
with torch.no_grad():
    for _ in range(20):
        tokens = torch.cat([tokens, head(cell(table(tokens)))[:, -1:].argmax(-1)], 1)
