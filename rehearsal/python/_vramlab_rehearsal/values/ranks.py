"""Collectives: known contents of operands are sent with them, and the contents of the other ranks are received."""

import functools

# Methods of a process group that send or receive tensors.
COLLECTIVES = (
    "broadcast allreduce allreduce_coalesced reduce allgather _allgather_base allgather_coalesced "
    "allgather_into_tensor_coalesced gather scatter reduce_scatter _reduce_scatter_base reduce_scatter_tensor_coalesced "
    "alltoall alltoall_base send recv recv_anysource"
).split()
# Largest operand, in bytes, that ranks exchange (`exchange.rs`).
MAX_EXCHANGED = 1 << 16
# Largest storage, in bytes, in which contents that ranks send are known.
MAX_STORAGE = 1 << 21


def hear_ranks(torch, values):
    """Starts the layer's part for collectives, if PyTorch has process groups."""
    if not torch.distributed.is_available():
        return
    group = torch.distributed.ProcessGroup
    for name in COLLECTIVES:
        method = getattr(group, name, None)
        if method is not None:
            setattr(group, name, heard(torch, values, method))


def heard(torch, values, method):
    @functools.wraps(method)
    def collective(group, *args, **kwargs):
        if values.doing.now.busy or torch.compiler.is_compiling():
            return method(group, *args, **kwargs)
        if values.writes.value != values.seen_writes:
            values.forget_written()
        small = [
            tensor
            for tensor in values.tensors([*args, *kwargs.values()], [])
            if tensor.is_cuda and type(tensor) in values.plain_types and tensor.nbytes <= MAX_EXCHANGED
        ]
        values.doing.now.busy = True
        try:
            with torch._C.DisableTorchFunction():
                shown = [twin for twin in map(values.find, small) if twin and twin.bytes <= MAX_EXCHANGED and not twin.doubtful and values.is_ready(twin)]
                for twin in shown:
                    values.library.vramlab_rehearsal_show(twin.address, twin.storage.data_ptr(), twin.bytes)
                try:
                    work = method(group, *args, **kwargs)
                finally:
                    values.library.vramlab_rehearsal_withdraw()
                if values.writes.value != values.seen_writes:
                    values.forget_written()
                for tensor in {tensor.untyped_storage()._cdata: tensor for tensor in small}.values():
                    expect(values, tensor)
            return work
        finally:
            values.doing.now.busy = False

    return collective


def expect(values, tensor):
    """Makes a collective's result in a tensor's storage known, once all ranks have reached the collective. Other tensors may be
    parts of the storage. The contents are fetched when they are used."""
    storage = tensor.untyped_storage()
    if not values.is_small(tensor) or storage.nbytes() > MAX_STORAGE:
        return
    promise = values.library.vramlab_rehearsal_promise(storage.data_ptr(), storage.nbytes())
    if promise:
        values.register(tensor)
        values.twins[storage._cdata].promise = promise
