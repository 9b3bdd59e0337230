#!/usr/bin/env python3
"""Measures what a rehearsal costs: time until the first step is over, and time of each further step.

    scripts/rehearse/cost/measure.py VRAMLAB PYTHON NANOGPT [ROUNDS]

NANOGPT is a checkout of nanoGPT with made data (`run.py` leaves one). Each script runs in turn under the library alone, and
under `vramlab rehearse` without lines and values, with lines, with values, and with both; medians of steps 4 to 20 in each run,
and the median of the runs. Nothing else should run on the machine; the load before it is printed."""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20
MODES = {
    "library alone": None,
    "neither": ["--no-stacks", "--no-values"],
    "lines": ["--no-values"],
    "values": ["--no-stacks"],
    "both": [],
}


def alone(library, folder):
    """The environment in which a script runs under the library alone, as in `docs/rehearse.md`."""
    for name in ("libvramlab_rehearsal.so", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
        link = pathlib.Path(folder) / name
        if not link.exists():
            link.symlink_to(library)
    return dict(os.environ, LD_PRELOAD=f"{folder}/libvramlab_rehearsal.so", LD_LIBRARY_PATH=folder,
                VRAMLAB_REHEARSAL_MEMORY=str(140 << 30), VRAMLAB_REHEARSAL_NAME="NVIDIA H200")


def measure(command, flags, vramlab, work, folder):
    """Seconds until the first step is over, and milliseconds of a step."""
    environment = dict(os.environ)
    if flags is None:
        environment = alone(pathlib.Path(vramlab).parent / "libvramlab_rehearsal.so", folder)
    else:
        command = [vramlab, "rehearse", "--steps", str(STEPS), *flags, "--", *command]
    start, first, steps = time.monotonic(), None, []
    run = subprocess.Popen(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, errors="replace")
    for line in run.stdout:
        found = re.search(r"time (\d+\.\d+)ms", line)
        if found:
            first = first or time.monotonic() - start
            steps.append(float(found.group(1)))
    run.wait()
    return first, statistics.median(steps[3:STEPS])


def main():
    vramlab, python, nanogpt = map(os.path.abspath, sys.argv[1:4])
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    flags = ["--compile=False", "--batch_size=8", "--eval_iters=1", "--gradient_accumulation_steps=2", "--log_interval=1"]
    scripts = {
        "nanoGPT": ([python, "train.py", *flags, f"--max_iters={STEPS + 1}"], nanogpt),
        "Trainer, GPT-2": ([python, str(HERE / "trainer.py"), str(STEPS)], HERE),
        "Faster R-CNN": ([python, str(HERE / "detector.py"), str(STEPS)], HERE),
    }
    print("load before:", os.getloadavg()[0])
    with tempfile.TemporaryDirectory() as folder:
        for name, (command, work) in scripts.items():
            found = {mode: [] for mode in MODES}
            for _ in range(rounds):
                for mode, flags in MODES.items():
                    found[mode].append(measure(command, flags, vramlab, work, folder))
            bare = statistics.median(step for _, step in found["library alone"])
            for mode, runs in found.items():
                first, step = (statistics.median(figures) for figures in zip(*runs))
                print(f"| {name} | {mode} | {first:.1f} s | {step:.0f} ms | {step / bare:.2f} |", flush=True)


if __name__ == "__main__":
    main()
