"""Padded batches: tokens taken by a mask, and split by their lengths."""

import torch
from torch import nn

torch.manual_seed(0)
words = nn.Embedding(20000, 512, padding_idx=0).cuda()
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
head = nn.Linear(512, 2).cuda()
optimizer = torch.optim.Adam([*words.parameters(), *model.parameters(), *head.parameters()])
for _ in range(5):
    lengths = torch.randint(16, 257, (32,))
    ids = torch.where(torch.arange(256) < lengths[:, None], torch.randint(1, 20000, (32, 256)), 0).cuda()
    mask = ids != 0
    packed = model(words(ids)[mask])
    pooled = torch.stack([part.mean(0) for part in packed.split(mask.sum(1).tolist())])
    loss = nn.functional.cross_entropy(head(pooled), (lengths > 128).long().cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
