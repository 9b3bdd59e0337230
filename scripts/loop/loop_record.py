#!/usr/bin/env python3
"""Records training loops that are not one batch after another of one size, on the real PyTorch.

    python scripts/loop/loop_record.py FOLDER [NAME ...]      FOLDER/NAME.json.gz for each program of loops.py, formats.py, adversaries.py, parallel.py and tuned.py

A card is needed, or a stand-in for one: no figure depends on what is computed. (Programs with cuDNN and those of parallel.py were recorded on the
library of `vramlab rehearse`, with plans of cuDNN that take no workspace.) A file has the format of lab/tests/golden/README.md. Each program
runs twice, each time in a process of its own: as it is, and under the profiler, which knows who made and who freed each block."""
import gzip
import json
import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../record"))
import adversaries
import formats
import loops
import parallel
import tuned
from script_format import COLUMNS, Rows, in_a_child, labels, recorded  # noqa: F401

PROGRAMS = {**loops.LOOPS, **formats.LOOPS, **adversaries.LOOPS, **parallel.LOOPS, **tuned.LOOPS}


def run(name, profiled):
    """The rows of a program and what its allocator did."""
    torch.backends.cudnn.enabled = "cudnn" in name
    return recorded(PROGRAMS[name], profiled, shortens=True)


def packed(name):
    """A program's recording."""
    plain, profiled = (in_a_child(run, name, profiled) for profiled in (False, True))
    kinds, sizes, places, freed, live, count = "", [], [], [], {}, 0
    found = labels(plain["events"], profiled["marks"], rounds=False)
    assert found is not None, "the profiler saw what is no event"
    first = min(address for _, _, address in plain["events"])
    for action, size, address in plain["events"]:
        if action == "a":
            live[address], count = count, count + 1
        elif action == "q":
            freed.append(live[address])
        if action == "c":
            continue
        kinds += "f" if action == "q" else action
        if action != "q":
            sizes.append(size)
            places.append((address - first) // 512)
    return {"format": "oracle-script-1", "name": name, "torch": torch.__version__, "alloc_conf": "", "env": {"FAKECUDNN_WS": os.environ.get("FAKECUDNN_WS", "0")} if "cudnn" in name else {}, "capacity": plain["capacity"],
            "device": plain["device"], "cudnn_enabled": "cudnn" in name, "step_columns": COLUMNS, "steps": plain["rows"], "ev": kinds, "ev_size": sizes,
            "ev_addr512": places, "ev_free_ref": freed, "op_names": found[0], "ev_op": found[1],
            **({"program": plain["program"]} if plain["program"] else {})}


def main():
    if sys.argv[1] == "--list":
        print(*sorted(PROGRAMS), sep="\n")
        return
    folder, names = sys.argv[1], sys.argv[2:] or list(PROGRAMS)
    for name in names:
        recording = packed(name)
        with open(os.path.join(folder, name + ".json.gz"), "wb") as file:
            file.write(gzip.compress(json.dumps(recording, separators=(",", ":")).encode(), mtime=0))
        print(name, len(recording["ev"]), "events, peak", recording["steps"][-1][2], flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
