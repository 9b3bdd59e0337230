#!/usr/bin/env python3
"""A program of random allocations, of which the allocator's history is recorded from the middle on.

    PYTORCH_ALLOC_CONF=expandable_segments:True python scripts/loop/middle.py FILE.pickle SEED

A card is needed, or the library of `vramlab rehearse`. Every third seed uses further streams, and every second one empties the cache at times."""
import random
import sys

import torch


def main():
    target, seed = sys.argv[1], int(sys.argv[2])
    chance, held = random.Random(seed), []
    streams = [torch.cuda.Stream() for _ in range(2)] if seed % 3 == 1 else []

    def allocate(size):
        stream = chance.choice([None] + streams)
        with torch.cuda.stream(stream):
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))

    def act(count):
        for _ in range(count):
            kind = chance.random()
            if kind < 0.55 or not held:
                limits = [(1, 4096), (4096, 1 << 20), (1 << 20, 12 << 20), (10 << 20, 60 << 20)]
                allocate(chance.choice([chance.randrange(*limit) for limit in limits]))
            elif kind < 0.98:
                tensor = held.pop(chance.randrange(len(held)))
                if streams and chance.random() < 0.2:
                    tensor.record_stream(chance.choice(streams))
            elif seed % 2:
                torch.cuda.empty_cache()
        while len(held) > 60:
            held.pop(chance.randrange(len(held)))

    act(chance.randrange(5, 200))
    torch.cuda.memory._record_memory_history(enabled="all", context="all", stacks="python", max_entries=100_000)
    act(chance.randrange(20, 300))
    torch.cuda.memory._dump_snapshot(target)


if __name__ == "__main__":
    main()
