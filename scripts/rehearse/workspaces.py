#!/usr/bin/env python3
"""Compares the workspaces of cuDNN's convolutions in a rehearsal with those that scripts/card/workspaces.py measured on a card.

    vramlab rehearse --gpu h100 --seconds 3000 -- python scripts/rehearse/workspaces.py benches/results/2026-11-26-h100-cudnn-workspaces.json

Each row of the file is called as it was on the card. Printed are the differences by where the answer is from, and by engine. With the name of a further
file the answers are written there, a row for each of the measured ones (with `--keep-outputs` of the rehearsal): xtask compares them.
"""
import ctypes
import json
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "card"))
from workspaces import PASSES, TYPES, allocated, layouts  # type: ignore[attr-defined]

WITHIN = (0, 512, 1 << 20, 10 << 20)
SOURCES = ["not asked", "asked", "asked, cuBLASLt computes", "asked, engine of this capability alone", "no cuDNN"]


def last_plan(library):
    """Where the last answer is from, and its engine."""
    plan = (ctypes.c_int64 * 3)()
    return (plan[0], plan[1]) if library.vramlab_rehearsal_plan(plan) == 0 else (len(SOURCES) - 1, -1)


def calls(key, dtype, layout):
    """A convolution and its two gradients, as functions. The first of them is called once, for the size of its result."""
    x_size, w_size, stride, padding, dilation, groups = key
    x = torch.randn(x_size, device="cuda", dtype=dtype).to(memory_format=layout)
    weight = torch.randn(w_size, device="cuda", dtype=dtype).to(memory_format=layout)
    none = [0] * len(stride)
    forward = lambda: (torch.ops.aten.convolution(x, weight, None, stride, padding, dilation, False, none, groups),)
    grad = torch.randn_like(forward()[0])

    def backward(*mask):
        return lambda: torch.ops.aten.convolution_backward(grad, x, weight, None, stride, padding, dilation, False, none, groups, mask)
    return dict(zip(PASSES, (forward, backward(True, False, False), backward(False, True, False))))


def rehearsed(library, row):
    """For each direction of a row: where the answer is from, the engine, the bytes. PyTorch asks for a plan once and keeps it."""
    key = (*(tuple(row[name]) for name in ("input", "weight", "stride", "padding", "dilation")), row["groups"])
    mode = row.get("mode", "default")
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = mode == "benchmark", mode == "deterministic"
    last_plan(library)
    made = calls(key, TYPES[row["type"]], layouts(len(key[0]))[row["format"]])
    plans, found = {"forward": last_plan(library)}, {}
    for direction, call in made.items():
        if mode == "benchmark":
            call()
        found[direction] = allocated(call)
        plans.setdefault(direction, last_plan(library))
    return {direction: (*plans[direction], found[direction]) for direction in made}


def compared(rows):
    """For each direction of each row: direction, source, engine, measured, rehearsed, row."""
    library, known, found = ctypes.CDLL(None), {}, []
    for row in rows:
        kind = json.dumps([value for name, value in row.items() if name not in ("network", "count", *PASSES)])
        if kind not in known:
            known[kind] = rehearsed(library, row)
        found += [(direction, source, engine, row[direction], bytes_, row) for direction, (source, engine, bytes_) in known[kind].items()]
    return found


def line(words, numbers):
    return "| " + " | ".join([*words, *(f"{number:,}" for number in numbers)]) + " |"


def summary(name, cases):
    within = [sum(abs(measured - said) <= limit for _, _, _, measured, said, _ in cases) for limit in WITHIN]
    off = [measured - said for _, _, _, measured, said, _ in cases]
    return line(name, [len(cases), *within, min(off), max(off)])


def write(path, found):
    """Writes the answers, in the order of the measured rows."""
    answers = [[source, engine, bytes_] for _, source, engine, _, bytes_, _ in found]
    about = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "measured": os.path.basename(sys.argv[1]),
        "what": "what cuDNN named without a card, for each row and direction: source (" + ", ".join(SOURCES) + "), engine, bytes",
        "columns": list(PASSES),
    }
    rows = [answers[at : at + len(PASSES)] for at in range(0, len(answers), len(PASSES))]
    with open(path, "w") as file:
        head = json.dumps(about)[:-1]
        file.write(head + ', "rows": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n")


def main():
    with open(sys.argv[1]) as file:
        data = json.load(file)
    rows = [dict(zip(data["columns"], row)) for row in data["rows"]]
    found = compared(rows)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}; measured: {data['device']}, cuDNN {data['cudnn']}\n")
    head = ["figures", "equal", "within 512 B", "within 1 MiB", "within 10 MiB", "least off", "most off"]
    print(line(["answer", "direction", *head], []) + "\n" + "|---" * (len(head) + 2) + "|")
    print(summary(["all", ""], found))
    for source in sorted({case[1] for case in found}):
        for direction in ("forward", "input_gradient", "weight_gradient"):
            cases = [case for case in found if case[1] == source and case[0] == direction]
            if cases:
                print(summary([SOURCES[source], direction], cases))
    print("\n" + line(["engine", "direction", *head], []) + "\n" + "|---" * (len(head) + 2) + "|")
    for engine in sorted({(case[1], case[2], case[0]) for case in found}):
        cases = [case for case in found if (case[1], case[2], case[0]) == engine]
        print(summary([f"{engine[1]} ({SOURCES[engine[0]]})", engine[2]], cases))
    if len(sys.argv) > 2:
        write(sys.argv[2], found)


if __name__ == "__main__":
    main()
