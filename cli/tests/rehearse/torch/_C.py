from . import _DisableTorchFunction as DisableTorchFunction  # noqa: F401

OBSERVERS = []


def _cuda_attach_out_of_memory_observer(observer):
    OBSERVERS.append(observer)


def _cuda_resetPeakMemoryStats(card):
    from .cuda import memory

    memory.PEAK = memory.NOW
