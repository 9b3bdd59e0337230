#!/usr/bin/env python3
"""Runs a script of PyTorch, on a card or under the rehearsal's library, and writes down every event of its allocator.

    PYTHON scripts/rehearse/recording.py FILE.json SCRIPT [WORD ...]

Used by `golden.py` and `proof.py`, which compare such lists. Under the library (`environment` below sets it up) the layer
for values runs as well. FILE.json has the card, the peaks, events as [action, bytes, address], the number of allocations
before each step of an optimizer, and at the end the bytes in use on the card and those of this process by NVML. With
VRAMLAB_RECORDING_STEPS=N in the environment the script ends after N steps of one optimizer."""

import bisect
import json
import os
import pathlib
import runpy
import subprocess
import sys
import traceback


def environment(library, folder, card):
    """The variables under which a script runs on a card that is not there; the folder gets links to the library."""
    folder, library = pathlib.Path(folder), pathlib.Path(library).resolve()
    for name in ("libvramlab_rehearsal.so", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
        if not (folder / name).exists():
            (folder / name).symlink_to(library)
    own = {"LD_PRELOAD": str(folder / "libvramlab_rehearsal.so"), "LD_LIBRARY_PATH": str(folder), "TRITON_LIBCUDA_PATH": str(folder)}
    return own | {f"VRAMLAB_REHEARSAL_{key.upper()}": str(value) for key, value in card.items()}


# They decide what is allocated, so those of the caller do not count.
DECIDING = ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING")


def record(python, words, variables, folder, cwd=None):
    """What a script did, run in `cwd` (`folder`, unless given); the reason, in a list, where it came to no end."""
    answer = pathlib.Path(folder) / "recording.json"
    answer.unlink(missing_ok=True)
    command = [python, os.path.abspath(__file__), str(answer), *words]
    own = {name: value for name, value in os.environ.items() if name not in DECIDING} | variables
    run = subprocess.run(command, cwd=cwd or folder, env=own, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode or not answer.exists():
        return run.stdout.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {run.returncode}"]
    return json.loads(answer.read_text())


def comparable(events):
    """Events without what differs from run to run: addresses become (segment, offset in it), a free that is completed at once is one
    event, and consecutive frees have one order."""
    starts, segments, numbers = [], {}, 0
    made, index = [], 0

    def place(address):
        at = bisect.bisect_right(starts, address) - 1
        start = starts[at] if at >= 0 else None
        return [segments[start][0], address - start] if start is not None and address < segments[start][1] else [-1, 0]

    while index < len(events):
        action, size, address = events[index]
        if action in ("segment_alloc", "segment_map"):
            at = bisect.bisect_right(starts, address) - 1
            if action == "segment_map" and at >= 0 and address <= segments[starts[at]][1] + size and address < starts[at] + (1 << 40):
                segments[starts[at]][1] = max(segments[starts[at]][1], address + size)
            else:
                bisect.insort(starts, address)
                segments[address] = [numbers, address + size]
                numbers += 1
        kind = action
        if action == "free_requested" and index + 1 < len(events) and events[index + 1] == ["free_completed", size, address]:
            kind, index = "free", index + 1
        where = [-1, 0] if action in ("oom", "snapshot") else place(address)
        made.append((kind, size, *where))
        if action == "segment_free":
            starts.remove(address)
            del segments[address]
        index += 1
    index = 0
    while index < len(made):
        end = index
        while end < len(made) and made[end][0] == "free":
            end += 1
        made[index:end] = sorted(made[index:end])
        index = max(end, index + 1)
    return made


def process_bytes():
    """Bytes of this process on the card by NVML, as nvidia-smi shows them; None where it does not say."""
    try:
        import pynvml

        pynvml.nvmlInit()
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(0))
    except Exception:
        return None
    return next((process.usedGpuMemory for process in running if process.pid == os.getpid()), None)


def main():
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    target, script, *words = sys.argv[1:]
    layer: dict | None = None
    steps, problem = [], None
    if "VRAMLAB_REHEARSAL_MEMORY" in os.environ:
        import ctypes

        library = ctypes.CDLL(None)
        library.vramlab_rehearsal_python.restype = ctypes.c_char_p
        layer = {"__name__": "vramlab_values"}
        exec(compile(library.vramlab_rehearsal_python(), "<vramlab>", "exec"), layer)
        layer["values"] = layer["install"](torch)
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=1 << 24)

    def events():
        return torch.cuda.memory._snapshot()["device_traces"][0]

    most, counts = int(os.environ.get("VRAMLAB_RECORDING_STEPS", 0)), {}

    def after_step(optimizer, *_):
        steps.append(torch.cuda.memory_stats()["allocation.all.allocated"])
        counts[id(optimizer)] = counts.get(id(optimizer), 0) + 1
        if counts[id(optimizer)] == most:
            write(None)
            sys.stdout.flush()
            os._exit(0)

    register_optimizer_step_post_hook(after_step)
    peaks, reset = [0, 0], torch._C._cuda_resetPeakMemoryStats

    def keep(*_):
        figures = torch.cuda.memory_stats()
        peaks[:] = [max(peak, figures[f"{name}_bytes.all.peak"]) for peak, name in zip(peaks, ("allocated", "reserved"))]

    torch._C._cuda_resetPeakMemoryStats = lambda index: (keep(), reset(index))[1]

    def write(problem):
        torch.cuda.synchronize()
        keep()
        properties = torch.cuda.get_device_properties(0)
        card = {"name": properties.name, "memory": torch.cuda.mem_get_info()[1], "capability": f"{properties.major}.{properties.minor}",
                "multiprocessors": properties.multi_processor_count}
        trace = [[event["action"], event["size"], event.get("addr", 0)] for event in events()]
        pathlib.Path(target).write_text(json.dumps({"torch": torch.__version__, "card": card, "peaks": peaks, "steps": steps, "ended_by": problem,
                                                    "process_bytes": process_bytes(), "reserved_bytes": torch.cuda.memory_reserved(), "events": trace}))

    sys.argv = [script, *words]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        problem = f"exit code {end.code}" if end.code else None
    except Exception as error:
        traceback.print_exc()
        problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    write(problem)


if __name__ == "__main__":
    main()
