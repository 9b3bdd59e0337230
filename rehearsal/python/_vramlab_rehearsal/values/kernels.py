"""Kernels of Triton: one writes only to tensors that it is given, so what is known of all others stays known.

The library sees a kernel that is not PyTorch's own, and no arguments: after it all contents would be doubtful (`known.py`)."""

import functools

# Modules of Triton and of PyTorch's compiler, with what starts a kernel in each.
STARTS = {"triton.runtime.jit": ("JITFunction", "run"), "torch._inductor.runtime.triton_heuristics": ("CachingAutotuner", "run")}
# Least number that may be an address on a card.
LEAST_ADDRESS = 1 << 32
# Longest tensor that is looked through for addresses.
MAX_TABLE = 1 << 12

# The layer of this process, once it has started.
LAYER: list = []


def hear_kernels(values):
    """Lets a layer hear of kernels."""
    LAYER[:] = [values]


def after_triton(module):
    """Called with a loaded module of `STARTS`."""
    owner, name = STARTS[module.__name__]
    kind = getattr(module, owner)
    start = getattr(kind, name)

    @functools.wraps(start)
    def started(self, *args, **kwargs):
        values = LAYER[0] if LAYER else None
        if values is None or values.torch.compiler.is_compiling():
            return start(self, *args, **kwargs)
        # What was written until now has its own effect.
        if values.writes.value != values.seen_writes:
            values.forget_written()
        out = start(self, *args, **kwargs)
        if values.writes.value != values.seen_writes:
            with values.torch._C.DisableTorchFunction():
                wrote(values, [*args, *kwargs.values()])
        return out

    setattr(kind, name, started)


def wrote(values, arguments):
    """Forgets the contents of the tensors that a kernel was given. If it may have been given addresses besides, all are doubtful."""
    found: list = []
    if not tensors(values, arguments, found) or any(has_addresses(values, tensor) for tensor in found):
        values.forget_written()
        return
    # The library says no more than that something was written.
    values.library.vramlab_rehearsal_written(values.room, len(values.room) // 2)
    values.seen_writes = values.writes.value
    for tensor in found:
        values.forget(tensor)


def tensors(values, arguments, found):
    """Finds the tensors among a kernel's arguments. Returns false if an argument may be an address, or is of an unknown kind."""
    for argument in arguments:
        if isinstance(argument, values.torch.Tensor):
            found.append(argument)
        elif isinstance(argument, int):
            if argument >= LEAST_ADDRESS:
                return False
        elif isinstance(argument, (list, tuple)):
            if not tensors(values, argument, found):
                return False
        elif hasattr(argument, "base") and hasattr(argument, "block_shape"):
            found.append(argument.base)
        elif hasattr(argument, "data_ptr"):
            return False
    return True


def has_addresses(values, tensor):
    """True if a tensor has known contents that may be addresses, as tables of matrices have them."""
    if not tensor.is_cuda or not str(tensor.dtype).endswith("int64") or tensor.numel() > MAX_TABLE:
        return False
    twin = values.find(tensor)
    return twin is not None and values.is_ready(twin) and any(number >= LEAST_ADDRESS for number in values.view(tensor, twin).flatten().tolist())
