"""FSDP2 on two cards, started by torchrun."""

import os

import torch
import torch.distributed as dist
from torch import nn

try:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError:  # PyTorch 2.5
    from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
layers = nn.ModuleList(nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True) for _ in range(4))
model = nn.Sequential(*layers).cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(5):
    loss = model(torch.rand(8, 128, 256, device="cuda")).float().square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
