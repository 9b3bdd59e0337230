"""Sequences in four buckets of lengths, each padded, with masks from a cache of four entries."""

import functools
import itertools

import torch


@functools.lru_cache(maxsize=4)
def mask(length):
    return torch.ones(length, length, device="cuda").tril().bool()


layer = torch.nn.TransformerEncoderLayer(128, 4, batch_first=True).cuda()
optimizer = torch.optim.AdamW(layer.parameters())
lengths = itertools.cycle([60, 128, 33, 250, 97, 180, 61, 12])
for _ in range(60):
    length = min(bucket for bucket in (64, 128, 192, 256) if bucket >= next(lengths))
    layer(torch.randn(4, length, 128, device="cuda"), src_mask=~mask(length)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
