#!/usr/bin/env python3
"""Records three training steps of small networks of transformers, whichever release is on PYTHONPATH, with the real PyTorch.

    vramlab rehearse --quiet --gpu h200 --cudnn none --steps 1000 -- python scripts/huggingface/record.py CASES.json > RECORDED
    python scripts/huggingface/record.py --pack FAMILY RECORDED FILE.json.gz      the format of lab/imports/tests/golden/models

CASES.json is a list of {name, class, config, batch, seq, options}; the options are those of a recording, and absent ones have their usual
value. Each case runs in a process of its own, and its rows are one line of the output."""
import gzip
import json
import os
import pathlib
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "record"))
from models import record

MARK = "RECORDED "


def in_a_child(case):
    """Records a case in a process of its own, and prints it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            print(MARK + json.dumps(record(case), separators=(",", ":")), flush=True)
            status = 0
        except BaseException:
            print(case["name"], file=sys.stderr)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def pack(family, recorded, packed):
    """Makes a file of recordings of the printed lines."""
    with open(recorded) as lines:
        runs = [json.loads(line.split(MARK, 1)[1]) for line in lines if MARK in line]
    runs = [{"name": run.pop("name"), "family": family, **run} for run in runs]
    text = json.dumps({"format": "oracle-models-1", "family": family, "runs": runs}, separators=(",", ":"))
    with open(packed, "wb") as file:
        file.write(gzip.compress(text.encode(), mtime=0))
    print(len(runs), "runs")


def main():
    if sys.argv[1] == "--pack":
        return pack(*sys.argv[2:])
    import torch
    import transformers
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    for case in cases:
        if hasattr(transformers, case["class"]):
            in_a_child(case)
        else:
            print(case["name"], "is of a class that this release does not have", file=sys.stderr)
    return None


if __name__ == "__main__":
    main()
