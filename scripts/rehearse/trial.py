#!/usr/bin/env python3
"""Compares the largest batch that `vramlab rehearse -P` finds with the one that single rehearsals find, tried one by one.

    scripts/rehearse/trial.py VRAMLAB PYTHON REPOSITORIES [NAME ...]

REPOSITORIES has checkouts of karpathy/nanoGPT (with made tokens in data/openwebtext) and pytorch/examples. A trial doubles the
batch until a rehearsal of it ends with 1, then halves the distance until one fits and the next does not. The table goes to
standard output, in Markdown."""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# Where, on what, which values the scan begins with, and what.
SCRIPTS: dict = {
    "nanoGPT": ("nanoGPT", "rtx3090", "8 24 -D 8",
                "python train.py --compile=False --batch_size={batch} --eval_iters=1 --gradient_accumulation_steps=1"),
    "ResNet-50": ("examples/imagenet", "rtx3060", "16 48 -D 16", "python main.py --dummy -a resnet50 -b {batch} -j 2 --epochs 1 --gpu 0"),
    "DCGAN": ("examples/dcgan", "2GiB", "64 192 -D 64", "python main.py --dataset fake --batchSize {batch} --accel --niter 1"),
    "Trainer, GPT-2": (HERE / "cost", "rtx4090", "4 12 -D 4", "python trainer.py 3 {batch}"),
    "Faster R-CNN": (HERE / "cost", "rtx3060", "2 6 -D 2", "python detector.py 3 {batch}"),
}


def main():
    vramlab, python, repositories = map(os.path.abspath, sys.argv[1:4])
    environment = dict(os.environ, PATH=f"{pathlib.Path(python).parent}:{os.environ['PATH']}")

    def rehearse(folder, flags, command):
        words = [vramlab, "rehearse", "-q", "--no-stacks", *flags, "--", *shlex.split(command)]
        run = subprocess.run(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if run.returncode not in (0, 1):
            sys.exit(run.stdout.decode(errors="replace")[-4000:])
        # `Perhaps`: it fits so far, but its memory grows.
        return b"No: " not in run.stdout

    print("| script | card | command | `-P` | seconds | by trial | rehearsals |\n|---|---|---|---|---|---|---|", flush=True)
    wrong = 0
    for name, (folder, card, values, command) in SCRIPTS.items():
        if sys.argv[4:] and name not in sys.argv[4:]:
            continue
        folder = pathlib.Path(repositories) / folder
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as answers:
            answer = pathlib.Path(answers) / "answer.json"
            rehearse(folder, ["--gpu", card, "-P", "batch", *values.split(), "--json", str(answer)], command)
            found = json.loads(answer.read_text())["largest"]["value"]
        seconds, count = time.monotonic() - start, 0

        def fits(batch, folder=folder, card=card, command=command):
            return rehearse(folder, ["--gpu", card, "--no-needs"], command.replace("{batch}", str(batch)))

        least, most = 0, 1
        while fits(most):
            least, most, count = most, 2 * most, count + 1
        while most - least > 1:
            middle, count = (least + most) // 2, count + 1
            least, most = (middle, most) if fits(middle) else (least, middle)
        wrong += found != least
        print(f"| {name} | {card} | `-P batch {values} -- {command}` | {found} | {seconds:.0f} | {least} | {count + 1} |", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
