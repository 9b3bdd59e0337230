"""A pipeline of a stage on each card, by PyTorch's own schedules, started by torchrun."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
device = torch.device("cuda", rank)
dist.init_process_group("nccl")
part = nn.Sequential(*(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(2))).to(device)
parts = max(4, world)
example = torch.rand(32 // parts, 512, device=device)
stage = PipelineStage(part, rank, world, device, input_args=(example,), output_args=(part(example),))
schedule = Schedule1F1B(stage, n_microbatches=parts, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.Adam(part.parameters())
for _ in range(5):
    x = torch.rand(32, 512, device=device)
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=x)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
