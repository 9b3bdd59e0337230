#!/usr/bin/env python3
"""Measures a step of several trainings on this processor, five configurations of each network in turn.

    scripts/rehearse/step_times.py VRAMLAB RESULTS.json [NAME ...]

A figure is seconds of the processor for a step: the difference of a run of a step and one of a few, each the least of some rounds. One thread computes, so that other
programs change it little. A test of the laboratory compares the estimate's order with these figures. A network whose row is in RESULTS.json is not measured again."""

import json
import os
import pathlib
import resource
import subprocess
import sys

ROUNDS, FEW, MORE = 3, 1, 5
GPT = {"model": "gpt", "heads": 4, "vocabulary": 512}
PICTURES = {"image": 32, "classes": 10}

NETWORKS: "dict[str, dict[str, object]]" = {
    "gpt-a": {**GPT, "layers": 4, "width": 128, "sequence": 64, "batch": 8},
    "gpt-b": {**GPT, "layers": 2, "width": 256, "sequence": 128, "batch": 4},
    "gpt-c": {**GPT, "layers": 6, "width": 192, "sequence": 64, "batch": 4},
    "gpt-d": {**GPT, "layers": 3, "width": 128, "sequence": 256, "batch": 2},
    "mlp-a": {"model": "mlp", "layers": 6, "width": 512, "batch": 128},
    "mlp-b": {"model": "mlp", "layers": 10, "width": 256, "batch": 512},
    "resnet18": {"model": "resnet18", **PICTURES, "batch": 8},
    "resnet50": {"model": "resnet50", **PICTURES, "batch": 4},
    "vgg16": {"model": "vgg16", **PICTURES, "batch": 4},
    "convnext-tiny": {"model": "convnext-tiny", "image": 64, "classes": 10, "batch": 2},
}
CONFIGURATIONS: "dict[str, dict[str, object]]" = {
    "sgd": {"optimizer": "sgd"},
    "momentum": {"optimizer": "momentum"},
    "adamw": {"optimizer": "adamw"},
    "adamw-every-second": {"optimizer": "adamw", "checkpoint": "blocks:2"},
    "adamw-blocks": {"optimizer": "adamw", "checkpoint": "blocks"},
}


def processor_seconds(vramlab, fields, steps):
    """What a run of so many steps uses of the processor, or None if it fails."""
    words = [word for name, value in {**fields, "steps": steps}.items() for word in (f"--{name}", str(value))]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        [vramlab, "train", *words, "-q", "--json", "/dev/null"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode != 0:
        print(" ".join(words), run.stderr.strip(), sep=": ", file=sys.stderr)
        return None
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    vramlab, results, *names = sys.argv[1:]
    # With one core the program computes with one thread.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    results = pathlib.Path(results)
    rows = json.loads(results.read_text()) if results.exists() else {}
    for name in names or NETWORKS:
        if name in rows:
            continue
        least: dict[tuple[str, int], float] = {}
        for _ in range(ROUNDS):
            for configuration, fields in CONFIGURATIONS.items():
                for steps in (FEW, MORE):
                    seconds = processor_seconds(vramlab, {**NETWORKS[name], **fields}, steps)
                    if seconds is not None:
                        least[configuration, steps] = min(least.get((configuration, steps), float("inf")), seconds)
        each = {one: (least[one, MORE] - least[one, FEW]) / (MORE - FEW) for one in CONFIGURATIONS if (one, MORE) in least}
        rows[name] = {"fields": NETWORKS[name], "seconds": each}
        results.write_text(json.dumps(rows, indent=1) + "\n")
        print(name, each, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
