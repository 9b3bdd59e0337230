"""Compares networks that are recorded, not exported, with their eager programs: how near is the way for modules that torch.export cannot follow?

    PYTHONPATH=python python scripts/export/recorded.py VRAMLAB [NAME...]

Each network of lab/imports/tests/golden/exported/eager is called once with a batch of 4, as `vramlab.export` does where `torch.export` fails, and
predicted from that file. A line for each: the eager program's peak over three steps, and how far the prediction lies from it.
"""
import importlib
import json
import os
import subprocess
import sys
import tempfile

import torch

import networks

# The package's function `export` hides the module of this name.
package = importlib.import_module("vramlab.export")

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lab/imports/tests/golden/exported/eager")


def cannot_be_followed(*_):
    raise RuntimeError("as a module that asks for values")


def predicted(vramlab, name, folder):
    make, examples, loss = networks.NETWORKS[name]
    torch.manual_seed(0)
    path = package.export(make().train(), *examples(4), path=os.path.join(folder, name + ".pt2"))
    flags = [] if loss == "inside" else ["--loss", loss]
    command = [vramlab, "predict", "--model-file", os.fspath(path), "--batch", "4", "--steps", "3", "--optimizer", "adamw",
               "--like", "torch-2.11-sm90", "--json", "-", *flags]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RuntimeError(answer.stderr.strip())
    return json.loads(answer.stdout)["peak"]["bytes"]


def main():
    package._exported = cannot_be_followed  # type: ignore[attr-defined]
    torch.set_num_threads(1)
    vramlab, names = sys.argv[1], sys.argv[2:] or sorted(name[:-5] for name in os.listdir(GOLDEN) if name.endswith(".json"))
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            with open(os.path.join(GOLDEN, name + ".json")) as file:
                found = json.load(file)
            at = found["columns"].index("phase_peak_allocated")
            eager = max(row[at] for row in found["runs"]["4"])
            try:
                bytes_ = predicted(vramlab, name, folder)
                print(f"{name:16} {eager:12} {100 * (bytes_ / eager - 1):+8.3f} %", flush=True)
            except Exception as error:
                print(f"{name:16} {eager:12} {str(error).splitlines()[-1][:150]}", flush=True)


main()
