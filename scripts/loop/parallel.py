"""Training loops of one rank of two under DistributedDataParallel: name -> a function that takes rows with `row(label)`.

The process group is PyTorch's own stand-in, and a bucket counts as reduced at once: the memory of a rank does not depend on what others send."""
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import loops
from loops import DEVICE


def reduced(_, bucket):
    """A bucket whose sums are there at once."""
    future = torch.futures.Future(devices=["cuda:0"])
    future.set_result(bucket.buffer())
    return future


def rank(row, model, data, batch=64, steps=3, accumulate=3, view=False, each=False):
    """Micro-batches whose gradients are reduced after the last one (no_sync), or after each."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group(backend="fake", rank=0, world_size=2, store=FakeStore())
    model = DistributedDataParallel(model.to(DEVICE), gradient_as_bucket_view=view, init_sync=False)
    model.register_comm_hook(None, reduced)
    torch.cuda.empty_cache()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    row("model")
    for step in range(steps):
        for micro in range(accumulate):
            at = f"s{step}." + (f"m{micro}." if accumulate > 1 else "")
            loaded = data(batch, 64)
            x = loaded[0].to(DEVICE)
            y = loaded[1].to(DEVICE)
            row(at + "input")
            if micro == 0:
                optimizer.zero_grad()
                row(f"s{step}.zero_grad")
            with contextlib.nullcontext() if each or micro + 1 == accumulate else model.no_sync():
                out = model(x)
                row(at + "forward")
                loss = loops.cross_entropy(out, y)
                if accumulate > 1:
                    loss = loss / accumulate
                row(at + "loss")
                loss.backward()
                row(at + "backward")
        optimizer.step()
        row(f"s{step}.step")


def wide():
    """Buckets of more than their limits: 25 MiB and more."""
    return loops.mlp(layers=4, width=2048)


LOOPS = {
    f"p_{'each' if each else 'last'}{'_view' if view else ''}": lambda row, each=each, view=view: rank(row, wide(), loops.features, each=each, view=view)
    for each in (False, True) for view in (False, True)
}
