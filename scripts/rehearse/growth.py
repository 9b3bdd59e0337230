#!/usr/bin/env python3
"""Rehearses the scripts of `leaks/` and `steady/`, and compares what the answers say of growth with `growth.json`.

    scripts/rehearse/growth.py VRAMLAB PYTHON [NAME ...]

A script that leaks must be told with its trend, the line that allocates, who holds it, the line that puts it there, and, within 2 %,
the bytes that a step adds. A script that does not leak must not be called one. A line that runs too seldom to be seen must be named.
A script may have a second answer, "or": `cycle.py` where Python's garbage collector runs within the steps that are seen. Python 3.11.7
collects after its steps 7, 24 and 43, and memory falls from 107 to 39 MiB at the last. AdamW's two states of the 273,418 parameters in
`optimizers.py` are 2,187,344 bytes for each two steps.
Exit code 1: an answer differs."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def rehearse(vramlab, python, script):
    """Returns the exit code and what the answer says of growth."""
    with tempfile.TemporaryDirectory() as folder:
        answer = pathlib.Path(folder) / "answer.json"
        command = [vramlab, "rehearse", "-q", "--gpu", "rtx4090", "--json", answer, "--", python, script.name]
        run = subprocess.run(command, cwd=script.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if not answer.exists():
            return run.returncode, None, run.stderr
        found = json.loads(answer.read_text())
    ranks = found["ranks"]
    return run.returncode, ranks[0]["growth"] if ranks else None, run.stderr


def differences(wanted, code, growth):
    """Says in what an answer differs from what is expected."""
    if growth is None:
        return ["no answer"]
    wrong = []
    if growth["trend"] not in wanted["trends"]:
        wrong.append(f"{growth['trend']}, not {' or '.join(wanted['trends'])}")
    if (code == 0) != wanted["fits"]:
        wrong.append(f"exit code {code}")
    for line in wanted.get("lines", []):
        found = next((one for one in growth["lines"] if one["where"] == line["where"]), None)
        if found is None:
            wrong.append(f"{line['where']} is not told: {[one['where'] for one in growth['lines']]}")
            continue
        wrong += [f"{key} {found[key]}, not {line[key]}" for key in ("holder", "held_at") if line.get(key) != found[key]]
        if abs(found["bytes_per_step"] - line["bytes_per_step"]) > 0.02 * line["bytes_per_step"]:
            wrong.append(f"{found['bytes_per_step']} bytes a step, not {line['bytes_per_step']}")
    if [line["where"] for line in growth["seldom"]] != wanted.get("seldom", []):
        wrong.append(f"lines that run seldom: {growth['seldom']}")
    if wanted.get("lines") and not growth["full_at_step"]:
        wrong.append("the step that fills the card is missing")
    return wrong


def main():
    vramlab, python = map(os.path.abspath, sys.argv[1:3])
    failed = 0
    for name, wanted in json.loads((HERE / "growth.json").read_text()).items():
        if sys.argv[3:] and name not in sys.argv[3:]:
            continue
        code, growth, errors = rehearse(vramlab, python, HERE / name)
        answers = [wanted] + ([wanted["or"]] if "or" in wanted else [])
        wrong = min((differences(one, code, growth) for one in answers), key=len)
        failed += bool(wrong)
        steps = growth["steps"] if growth else 0
        print(f"{name}: {growth and growth['trend']} after {steps} steps{': ' + '; '.join(wrong) if wrong else ''}", flush=True)
        if growth is None:
            print(errors[-2000:])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
