"""Exports the committed networks anew with the PyTorch that is installed, and has the program answer for each new file.

    python anew.py PROGRAM [NAME...]

With the release that made the committed file, the graph of a network that is written here must be the committed one; where it stands in the
source does not count. The graph of a library's network depends on the library's release, and one that differs is named. With another release,
the new file must be answered. A network whose library is not installed is named. Ends with 1 if a network fails, or none was exported.
"""
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile

import torch

import libraries
import networks
import record

COMMITTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lab", "imports", "tests", "golden", "exported")

# What an export says of the source: it changes when a line is added above.
SOURCE = ("stack_trace", "nn_module_stack")


def graph(archive):
    """The program of a compressed archive, without its source, and the release of PyTorch that wrote it."""
    with zipfile.ZipFile(io.BytesIO(gzip.decompress(archive))) as entries:
        program = without_source(json.loads(entries.read("net/models/model.json")))
    return program, program.pop("torch_version").split(".")[:2]


def without_source(part):
    if isinstance(part, dict):
        return {key: without_source(value) for key, value in part.items() if key not in SOURCE}
    if isinstance(part, list):
        return [without_source(value) for value in part]
    return part


def committed(name):
    """The file of a committed export."""
    return os.path.join(COMMITTED, name + ".pt2.gz")


def exported(name, program):
    """Exports a network and has it answered. Returns what is to be said of it, or None; a RuntimeError in a child where it fails."""
    try:
        made, _, loss = networks.exported(name)
    except ImportError as error:
        return f"left out: {str(error).strip().splitlines()[0]}"
    archive = record.archived(made)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, name + ".pt2")
        with open(file, "wb") as out:
            out.write(gzip.decompress(archive))
        words = [program, "train", "--backend", "meta", "--model-file", file, "--batch", "4", "--steps", "1"]
        words += [] if loss == "inside" else ["--loss", loss]
        answer = subprocess.run(words, capture_output=True, text=True)
    if answer.returncode != 0:
        raise RuntimeError(f"the program ended with {answer.returncode}: {answer.stderr.strip()}")
    with open(committed(name), "rb") as file:
        before, its_release = graph(file.read())
    now, release = graph(archive)
    if release == its_release and now != before:
        if name not in libraries.NETWORKS:
            raise RuntimeError("the graph is not the committed one")
        return "the graph is not the committed one: is the library of another release?"
    return None


def main():
    program, names = sys.argv[1], sys.argv[2:] or [name for name in networks.NETWORKS if os.path.exists(committed(name))]
    torch.set_num_threads(1)
    answered, failed = 0, []
    for name in names:
        try:
            said = record.in_a_child(exported, name, program)
        except RuntimeError:
            failed.append(name)
            continue
        answered += not (said or "").startswith("left out")
        if said:
            print(f"{name}: {said}", flush=True)
    print(f"{answered} of {len(names)} networks exported anew by PyTorch {torch.__version__} and answered")
    if failed:
        print("failed:", *failed)
    sys.exit(1 if failed or answered == 0 else 0)


if __name__ == "__main__":
    main()
