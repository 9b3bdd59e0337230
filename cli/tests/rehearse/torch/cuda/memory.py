import sys
import time

NOW = PEAK = OOMS = 0
EVENTS, BASE = [], 1 << 40


def _record_memory_history(*_args, context=None, **_kwargs):
    # With lines of frees PyTorch loses exceptions.
    assert context in (None, "alloc"), context


def allocate(size, limit=1 << 40):
    """The script's allocation: its address, or PyTorch's error."""
    global NOW, PEAK, OOMS
    import torch

    torch.cuda.init()
    if NOW + size > limit:
        OOMS += 1
        for observer in torch._C.OBSERVERS:
            observer(0, size, limit, max(0, limit - NOW))
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate %d bytes." % size)
    address = BASE + NOW
    frame = sys._getframe(1)
    frames = [{"filename": frame.f_code.co_filename, "line": frame.f_lineno, "name": frame.f_code.co_name}]
    EVENTS.append({"action": "alloc", "addr": address, "size": size, "stream": 0, "time_us": int(time.time() * 1e6),
                   "frames": frames})
    NOW += size
    PEAK = max(PEAK, NOW)
    return address


def _snapshot():
    return {"segments": [], "device_traces": [EVENTS]}
