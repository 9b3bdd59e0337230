"""DistributedDataParallel, started by torch.multiprocessing on two cards, or by torchrun; ranks send each other an object."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn


def train(rank, world):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29751")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    told = [{"width": 512}] if rank == 0 else [None]
    dist.broadcast_object_list(told, src=0)
    width = told[0]["width"]
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(width, 2048), nn.ReLU(), nn.Linear(2048, width)).cuda(), device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        x = torch.rand(64, width).cuda()
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        # NCCL's watchdog frees buffers some 100 ms later, on cards too.
        time.sleep(0.3)
    count = torch.tensor(rank + 1, device="cuda")
    dist.all_reduce(count)
    assert count.item() == world * (world + 1) // 2, count.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        torch.multiprocessing.spawn(train, (2,), nprocs=2)
