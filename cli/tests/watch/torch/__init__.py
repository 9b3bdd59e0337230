"""As much of PyTorch as a watched training touches, without a card: memory is what a script says."""

import os
import shutil
import types

__version__ = "0.0+stand-in"
version = types.SimpleNamespace(cuda="13.0", hip=None)
HELD = types.SimpleNamespace(allocated=0, peak=0, made=0)
_observers = []


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    is_cuda, grad = False, None


class _Disable:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def _stats(_device):
    held = {"all": {"current": HELD.allocated, "peak": HELD.peak}}
    return {"allocated_bytes": held, "reserved_bytes": held, "allocation": {"all": {"allocated": HELD.made}}}


def allocate(size):
    """Holds more; more than 1000 bytes are not there."""
    if HELD.allocated + size > 1000:
        for observer in _observers:
            observer(0, size, 1000, 1000 - HELD.allocated)
        raise OutOfMemoryError("CUDA out of memory.")
    HELD.allocated += size
    HELD.peak = max(HELD.peak, HELD.allocated)
    HELD.made += 1


_C = types.SimpleNamespace(DisableTorchFunction=_Disable, _cuda_attach_out_of_memory_observer=_observers.append)
cuda = types.SimpleNamespace(
    OutOfMemoryError=OutOfMemoryError,
    is_available=lambda: os.environ.get("STAND_IN") != "absent",
    get_device_name=lambda _device: "NVIDIA stand-in",
    mem_get_info=lambda _device: (1000 - HELD.allocated, 1000),
    memory_stats_as_nested_dict=_stats,
    _lazy_call=lambda begin: None if os.environ.get("STAND_IN") in ("unused", "absent") else begin(),
    memory=types.SimpleNamespace(
        _record_memory_history=lambda **_how: None, _dump_snapshot=lambda path: shutil.copy(os.environ["STAND_IN_SNAPSHOT"], path)
    ),
)
