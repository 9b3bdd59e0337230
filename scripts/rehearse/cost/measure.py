#!/usr/bin/env python3
"""Measures what a rehearsal costs: time until the first step is over, and processor time of each further step.

    scripts/rehearse/cost/measure.py VRAMLAB PYTHON NANOGPT [ROUNDS [NAME ...]]

NANOGPT is a checkout of nanoGPT with made data (`run.py` leaves one). Each script runs in turn under the library alone, and
under `vramlab rehearse` without lines and values, with lines, with values, and with both: medians of steps 4 to 20 in each run,
and the median of the runs. Processor time is that of all threads of the process, which other programs disturb less than
time itself (`sitecustomize.py` prints it). Exit code 1: a step with lines and values takes more than 2.5 times one with
lines, or one without either more than 2 times one under the library alone."""

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
    """The environment in which a script runs under the library alone, as in `docs/rehearsal-library.md`."""
    for name in ("libvramlab_rehearsal.so", "libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
        link = pathlib.Path(folder) / name
        if not link.exists():
            link.symlink_to(library)
    return dict(os.environ, LD_PRELOAD=f"{folder}/libvramlab_rehearsal.so", LD_LIBRARY_PATH=folder,
                VRAMLAB_REHEARSAL_MEMORY=str(140 << 30), VRAMLAB_REHEARSAL_NAME="NVIDIA H200")


def measure(command, flags, vramlab, work, folder):
    """Seconds until the first step is over, and milliseconds of processor time of a step."""
    environment = alone(pathlib.Path(vramlab).parent / "libvramlab_rehearsal.so", folder) if flags is None else dict(os.environ)
    environment["PYTHONPATH"] = str(HERE)
    if flags is not None:
        command = [vramlab, "rehearse", "--steps", str(STEPS), *flags, "--", *command]
    start, first, steps = time.monotonic(), None, []
    run = subprocess.Popen(command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True, errors="replace")
    for line in run.stdout:
        found = re.search(r"processor (\d+\.\d+)ms", line)
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
        "Faster R-CNN, equal boxes": ([python, str(HERE / "detector.py"), str(STEPS), "2", "same"], HERE),
    }
    print("load before:", os.getloadavg()[0])
    print("| script | | first step after | a step | beside the library alone | beside `--no-values` |\n|---|---|---|---|---|---|")
    exceeded = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (command, work) in scripts.items():
            if sys.argv[5:] and name not in sys.argv[5:]:
                continue
            found = {mode: [] for mode in MODES}
            for _ in range(rounds):
                for mode, flags in MODES.items():
                    found[mode].append(measure(command, flags, vramlab, work, folder))
            firsts, steps = ({mode: statistics.median(run[at] for run in runs) for mode, runs in found.items()} for at in (0, 1))
            for mode in MODES:
                ratios = f"{steps[mode] / steps['library alone']:.1f} | {steps[mode] / steps['lines']:.1f}"
                print(f"| {name} | {mode} | {firsts[mode]:.1f} s | {steps[mode]:.1f} ms | {ratios} |", flush=True)
            exceeded += steps["both"] > 2.5 * steps["lines"] or steps["neither"] > 2 * steps["library alone"]
    sys.exit(1 if exceeded else 0)


if __name__ == "__main__":
    main()
