#!/usr/bin/env python3
"""Rehearses the trainings that a card was measured with, and writes what is said of each into the table of published figures.

    python rehearsed.py VRAMLAB [--only ID,ID]

Run it with a Python that has PyTorch, torchvision, timm and transformers. Rows of `xtask/published/rows.tsv` whose column `how` begins with `said` and
whose place names a script of this repository get the reserved memory of its fullest process, in bytes, and what decides how far a card may be from it.
Compiled and timed ones keep theirs: their kernels are those that the card timed. So do networks of transformers with another release than the measured one.
"""
import argparse
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TABLE = ROOT / "xtask/published/rows.tsv"
OWN = ROOT / "scripts/rehearse/own"
SOURCE, PLACE, TECHNIQUE, HOW = 1, 2, 5, 11
# The release that the card had.
TRANSFORMERS = "5.17.0"


def words(place):
    """The words of a row's script, with its path; None if it is not one of this repository, or cannot be rehearsed as it was measured."""
    name, *rest = place.split(": ", 1)[1].split(" ")
    name = name.removesuffix(".py") + ".py"
    found = [folder / name for folder in (HERE / "networks", OWN) if (folder / name).exists()]
    is_another = name.startswith(("transformers_", "adapted_")) and importlib.metadata.version("transformers") != TRANSFORMERS
    return [str(found[0]), *rest] if found and not is_another else None


def said(vramlab, script, folder):
    """Reserved bytes and basis of a rehearsal, or None with the reason."""
    answer = pathlib.Path(folder) / "answer.json"
    command = [vramlab, "rehearse", "--gpu", "h200", "--steps", "3", "--no-stacks", "-q", "--json", str(answer), "--", sys.executable, *script]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if not answer.exists():
        return None, ran.stderr.strip().splitlines()[-1:]
    found = json.loads(answer.read_text())
    peaks = [rank["peak_reserved"] for rank in found["ranks"]]
    return (max(peaks), found["basis"]) if peaks else (None, found["sentence"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vramlab")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    only = {name for name in options.only.split(",") if name}
    lines = TABLE.read_text().splitlines()
    for index, line in enumerate(lines):
        row = line.split("\t")
        if row[SOURCE] != "H200, own scripts" or row[TECHNIQUE].startswith("compiled") or (only and row[0] not in only):
            continue
        script = words(row[PLACE])
        if script is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            reserved, basis = said(str(pathlib.Path(options.vramlab).resolve()), script, folder)
        if reserved is None:
            print(f"{row[0]} {row[PLACE]}: kept, {basis}", flush=True)
            continue
        print(f"{row[0]} {row[PLACE]}: {row[6]} MiB on the card, {reserved / 2**20:.0f} {basis} ({row[HOW]})", flush=True)
        lines[index] = "\t".join([*row[:HOW], f"said {reserved} {basis}"])
        TABLE.write_text("\n".join(lines) + "\n")


main()
