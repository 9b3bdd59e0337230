"""Training loops of one rank of two under DistributedDataParallel: name -> a function that takes rows with `row(label)`.

The process group is PyTorch's own stand-in, and a bucket counts as reduced at once: the memory of a rank does not depend on what others send."""
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import loops


def reduced(_, bucket):
    """A bucket whose sums are there at once."""
    future = torch.futures.Future(devices=["cuda:0"])
    future.set_result(bucket.buffer())
    return future


def rank(row, view=False, each=False):
    """Micro-batches whose gradients are reduced after the last one (no_sync), or after each."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group(backend="fake", rank=0, world_size=2, store=FakeStore())

    def ready(row, model):
        model = DistributedDataParallel(model, gradient_as_bucket_view=view, init_sync=False)
        model.register_comm_hook(None, reduced)
        torch.cuda.empty_cache()
        return model, "model"

    def around(model, last):
        return contextlib.nullcontext() if each or last else model.no_sync()

    return loops.in_turn(row, wide(), loops.features, (64,), steps=3, accumulate=3, ready=ready, around=around)


def wide():
    """Buckets of more than their limits: 25 MiB and more."""
    return loops.mlp(layers=4, width=2048)


LOOPS = {
    f"p_{'each' if each else 'last'}{'_view' if view else ''}": lambda row, each=each, view=view: rank(row, view, each)
    for each in (False, True) for view in (False, True)
}
