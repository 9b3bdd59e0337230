from . import _DisableTorchFunction as DisableTorchFunction  # noqa: F401

OBSERVERS = []


def _cuda_attach_out_of_memory_observer(observer):
    OBSERVERS.append(observer)


def _cuda_resetPeakMemoryStats(card):
    from .cuda import memory

    memory.PEAK = memory.NOW


def _cuda_memoryStats(_card):
    from .cuda import memory

    def of(current, made, freed):
        return {"all": {"current": current, "peak": current, "allocated": made, "freed": freed}}

    made, freed = len([e for e in memory.EVENTS if e["action"] == "alloc"]), memory.FREED
    return {"allocation": of(made - freed, made, freed), "segment": of(0, 0, 0),
            **{name: of(memory.NOW, memory.MADE, memory.MADE - memory.NOW) for name in
               ("requested_bytes", "allocated_bytes", "reserved_bytes", "active_bytes")}, "inactive_split_bytes": of(0, 0, 0)}
