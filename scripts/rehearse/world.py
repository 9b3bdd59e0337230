#!/usr/bin/env python3
"""Rehearses scripts with all of 8 ranks, and with ranks 0, 3 and 7 alone, and compares what these allocate.

    scripts/rehearse/world.py VRAMLAB PYTHON [SCRIPT ...]

PYTHON has PyTorch for CUDA; no GPU is needed. Without names it takes DDP, FSDP2, tensor parallel and a pipeline of `own/`.
Two lists of events are the same if they have the same allocations, by size and in order."""

import os
import pathlib
import pickle
import shlex
import shutil
import subprocess
import sys
import tempfile

OWN = pathlib.Path(__file__).resolve().parent / "own"
SCRIPTS = ["ddp.py", "fsdp2.py", "tensor_parallel.py", "pipeline.py"]
WORLD, RANKS = 8, (0, 3, 7)


def rehearse(vramlab, python, flags, command, snapshot):
    """The sizes that each rank allocated, in order."""
    environment = dict(os.environ, PATH=f"{pathlib.Path(python).parent}:{os.environ['PATH']}", OMP_NUM_THREADS="1")
    words = [vramlab, "rehearse", "-q", "--steps", "3", "--no-stacks", *flags, "--snapshot", str(snapshot), "--", *shlex.split(command)]
    run = subprocess.run(words, cwd=OWN, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    found = {}
    for path in snapshot.parent.glob(snapshot.name + "*"):
        trace = [event for device in pickle.loads(path.read_bytes())["device_traces"] for event in device]
        found[int(path.suffix[1:])] = [event["size"] for event in trace if event["action"] == "alloc"]
    # 1: three steps may be too few to tell whether memory grows.
    if run.returncode not in (0, 1) or not found:
        print(run.stdout.decode(errors="replace")[-4000:])
        return {}
    return found


def compare(vramlab, python, script, folder):
    """Whether the ranks allocate the same; says what it found."""
    folder = pathlib.Path(folder)
    everyone = rehearse(vramlab, python, ["--gpus", str(WORLD)],
                        f"torchrun --standalone --nproc_per_node={WORLD} {script}", folder / f"{script}.all")
    alone = rehearse(vramlab, python, ["--world", str(WORLD), "--ranks", ",".join(map(str, RANKS))], f"python {script}", folder / f"{script}.some")
    same = sorted(everyone) == list(range(WORLD)) and sorted(alone) == list(RANKS) and all(alone[rank] == everyone[rank] for rank in RANKS)
    counts = ", ".join(f"rank {rank}: {len(alone.get(rank, ()))} and {len(everyone.get(rank, ()))}" for rank in RANKS)
    print(f"{script}: allocations {'the same' if same else 'DIFFER'} alone and with all ranks ({counts})", flush=True)
    return same


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    vramlab, python = os.path.abspath(sys.argv[1]), os.path.abspath(shutil.which(sys.argv[2]) or sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        same = [compare(vramlab, python, script, folder) for script in sys.argv[3:] or SCRIPTS]
    sys.exit(0 if all(same) else 1)


if __name__ == "__main__":
    main()
