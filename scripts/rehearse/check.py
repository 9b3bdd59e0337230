#!/usr/bin/env python3
"""Rehearses the project's own scripts, and those of $VRAMLAB_SCRIPTS, and compares what they take with what is recorded.

    scripts/rehearse/check.py VRAMLAB PYTHON [--record]

PYTHON has PyTorch for CUDA; no GPU is needed. `own/expected.json` has the peaks of each script by release of PyTorch; a
release that is not in it is run and not compared, which is said. VRAMLAB_SCRIPTS names a folder of further scripts (*.py),
which only have to come to an answer. Ranks started alone must allocate what they do with all others (`world.py`). --record
writes what was found. Exit code 77: there is no such Python, and why."""

import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

import world

SKIPPED = 77
OWN = pathlib.Path(__file__).resolve().parent / "own"
EXPECTED = OWN / "expected.json"
# How a script is started where `python SCRIPT` is not it, and on how many cards.
STARTED = {
    "ddp.py": ("python ddp.py", 2),
    "fsdp2.py": ("torchrun --standalone --nproc_per_node=2 fsdp2.py", 2),
    "pipeline.py": ("torchrun --standalone --nproc_per_node=2 pipeline.py", 2),
    "tensor_parallel.py": ("torchrun --standalone --nproc_per_node=2 tensor_parallel.py", 2),
}


def rehearse(vramlab, python, script, folder):
    """The answer to one script, in a folder that goes; None if there is none, after what was said."""
    command, cards = STARTED.get(script.name, (f"python {script.name}", 1)) if script.parent == OWN else (f"python {script}", 1)
    environment = dict(os.environ, PATH=f"{pathlib.Path(python).parent}:{os.environ['PATH']}", CUBLAS_WORKSPACE_CONFIG="")
    # All steps of the own ones: some of what they check comes after the last.
    # The peaks are those without cuDNN's workspaces, so that they are the same with every release of cuDNN.
    flags = ["--cudnn", "none", "--gpu", "h200", "--gpus", str(cards), "--steps", "100" if script.parent == OWN else "3"]
    answer = pathlib.Path(folder) / "answer.json"
    answer.unlink(missing_ok=True)
    run = subprocess.run([vramlab, "rehearse", *flags, "--json", str(answer), "--", *shlex.split(command)], cwd=script.parent,
                         env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode not in (0, 1) or not answer.exists():
        print(run.stdout.decode(errors="replace")[-4000:])
        return None
    return json.loads(answer.read_text())


def peaks(found):
    """Of each rank, in bytes: allocated, reserved."""
    return [[rank["peak_allocated"], rank["peak_reserved"]] for rank in found["ranks"]]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def main():
    words = [word for word in sys.argv[1:] if word != "--record"]
    if len(words) != 2:
        sys.exit(__doc__)
    if shutil.which(words[1]) is None:
        skip(f"{words[1]} is not a program")
    vramlab, python = os.path.abspath(words[0]), os.path.abspath(shutil.which(words[1]))
    asked = subprocess.run([python, "-c", "import torch; print(torch.__version__.split('+')[0] if torch.version.cuda else '')"],
                           capture_output=True, text=True)
    release = asked.stdout.strip()
    if asked.returncode or not release:
        skip(f"{python} has no PyTorch for CUDA")
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    known = expected.get(release)
    found_now, failed = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for script in sorted(OWN.glob("*.py")):
            found = rehearse(vramlab, python, script, folder)
            if found is None or found["fits"] is not True or found["stopped"] != "end":
                failed.append(f"{script.name}: no answer, or not to the end")
                continue
            found_now[script.name] = peaks(found)
            if "--record" in sys.argv or known is None:
                continue
            if script.name not in known:
                print(f"skipped: peaks of {script.name}: none are recorded for this release")
            elif known[script.name] != found_now[script.name]:
                failed.append(f"{script.name}: {found_now[script.name]}, recorded are {known[script.name]}")
        print(f"PyTorch {release}: {len(found_now)} own scripts ran to their end")
        others = os.environ.get("VRAMLAB_SCRIPTS")
        for script in sorted(pathlib.Path(others).resolve().glob("*.py")) if others else ():
            found = rehearse(vramlab, python, script, folder)
            print(f"{script.name}: {peaks(found) if found else 'no answer'}")
            if found is None:
                failed.append(f"{script.name}: no answer")
        for script in world.SCRIPTS:
            if not world.compare(vramlab, python, script, folder):
                failed.append(f"{script}: ranks started alone do not allocate what they do with all others")
    if "--record" in sys.argv and not failed:
        expected[release] = found_now
        EXPECTED.write_text(json.dumps(expected, indent=1, sort_keys=True).replace("\n    ", " ").replace("\n   ]", " ]") + "\n")
    if failed:
        print("\n".join(failed))
    if not others:
        print("skipped: scripts of VRAMLAB_SCRIPTS: it is not set")
    if known is None and "--record" not in sys.argv:
        print(f"skipped: peaks of PyTorch {release}: none are recorded")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
