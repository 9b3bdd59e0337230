"""A loop that makes something in some of its steps only: it keeps it, or lets it go."""

import argparse
import itertools

import torch

parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["keep", "let-go", "cache", "turns", "epochs"])
parser.add_argument("--log-every", type=int, default=100)
parser.add_argument("--steps", type=int, default=1000)
args = parser.parse_args()
parameter = torch.Tensor(torch.cuda.memory.allocate(1 << 20))
optimizer = torch.optim.Optimizer([parameter])
kept, cache = [], {}


def made():
    return torch.Tensor(torch.cuda.memory.allocate(3 << 20))


if args.what == "turns":
    for turn in itertools.islice(itertools.cycle("abc"), args.steps):
        optimizer.step()
        if turn == "c":
            kept.append(made())
if args.what == "epochs":
    for _ in range(args.steps // 3):
        for _ in range(3):
            optimizer.step()
        kept.append(made())
for step in range(args.steps):
    if args.what == "cache" and step in (3, 9, 10):
        cache[step] = torch.Tensor(torch.cuda.memory.allocate(1 << 20))
    optimizer.step()
    if step and step % args.log_every == 0:
        new = made()
        if args.what == "keep":
            kept.append(new)
        else:
            torch.cuda.memory.free(new.address, 3 << 20)
