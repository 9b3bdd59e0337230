#!/usr/bin/env python3
"""Rehearses the scripts of `scripts.toml`, and writes what they take as a table.

    scripts/rehearse/run.py --work DIR --python PYTHON [--vramlab PROGRAM] [--table FILE] [NAME…]

Each script is fetched from its public repository at the commit of the table into DIR/repositories, its data are made
by `make.py`, and it is run through `vramlab rehearse`. Nothing that is fetched or made belongs to this project. PYTHON has
PyTorch and the packages that the table names; no package is installed. DIR/results holds the answer of each script and
what it printed. Git's own `url.….insteadOf` takes the place of a flag for mirrors. Python 3.11 or later."""

import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

import tomllib

HERE = pathlib.Path(__file__).resolve().parent
# What says of an answer that it may not be exact (`docs/rehearsal-library.md`); reads of single numbers do not.
HARMLESS = {"collective", "no_kernel_image", "addresses_not_reserved", "context_does_not_fit", "no_such_function"}


def fetch(script, work):
    """The folder of a script's repository at its commit; the run's own folder for a script of the maker."""
    name, commit = script["repository"], script["commit"]
    # Data are made inside it: one for each script.
    folder = work / "repositories" / f"{name.replace('/', '+')}-{script['name']}"
    if (folder / ".fetched").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "init", "-q"], check=True)
    # Only the folders that are named come over the network.
    paths = script.get("paths", [f"/{script['folder']}/"] if "folder" in script else [])
    subprocess.run([*git, "remote", "add", "origin", f"https://github.com/{name}"], check=True)
    subprocess.run([*git, "fetch", "-q", "--depth", "1", "--filter=blob:none", "origin", commit], check=True)
    if paths:
        subprocess.run([*git, "sparse-checkout", "set", "--no-cone", *paths], check=True)
    subprocess.run([*git, "checkout", "-q", commit], check=True)
    (folder / ".fetched").touch()
    return folder


def without_anything(work):
    """Environment of a user whose caches are empty; nothing says that there is no network."""
    home = work / "empty"
    home.mkdir(parents=True, exist_ok=True)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    return dict(own, HOME=str(home), HF_HOME=str(home / "hf"), TORCH_HOME=str(home / "torch"), TOKENIZERS_PARALLELISM="false")


def environment(work):
    """Environment of the run: caches in the working folder, and no network access."""
    own = dict(
        os.environ,
        HOME=str(work / "home"),
        HF_HOME=str(work / "home" / "hf"),
        HF_HUB_OFFLINE="1",
        HF_DATASETS_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        TORCH_HOME=str(work / "home" / "torch"),
        TOKENIZERS_PARALLELISM="false",
        HF_HUB_DISABLE_TELEMETRY="1",
        DO_NOT_TRACK="1",
    )
    (work / "home").mkdir(parents=True, exist_ok=True)
    return own


def make(script, folder, options):
    """Makes data and configurations, each once."""
    for line in script.get("data", []):
        kind, target, *words = shlex.split(line.replace("{home}", str(options.work / "home")))
        done = folder / target / f".made-{kind}"
        if not done.exists():
            command = [options.python, str(HERE / "make.py"), kind, str(folder / target), *words]
            subprocess.run(command, check=True, env=environment(options.work), cwd=folder)
            done.touch()


def rehearse(script, options):
    """Runs one script; its answer with what the runner adds."""
    results = options.work / "results"
    results.mkdir(parents=True, exist_ok=True)
    answer, log = results / f"{script['name']}.json", results / f"{script['name']}.log"
    answer.unlink(missing_ok=True)
    try:
        folder = fetch(script, options.work)
        make(script, folder, options)
    except (OSError, subprocess.CalledProcessError) as error:
        return {"name": script["name"], "code": None, "error": str(error)}
    flags = ["--gpu", script.get("gpu", "h200"), "--gpus", str(script.get("gpus", 1)), "--json", str(answer)]
    for flag in ("steps", "seconds"):
        if flag in script:
            flags += [f"--{flag}", str(script[flag])]
    words = [word.replace("{repository}", str(folder)) for word in shlex.split(script["command"])]
    own = environment(options.work)
    if "make_data" in script:
        flags += [f"--make-data={script['make_data']}"]
        own = without_anything(options.work)
    # Programs of the environment (torchrun, accelerate, jupyter) come before others.
    own["PATH"] = f"{pathlib.Path(options.python).parent}:{own['PATH']}"
    if script.get("accept"):
        own["PYTHONPATH"] = str(HERE / "accept")
    own |= {name: value.replace("{repository}", str(folder)) for name, value in script.get("environment", {}).items()}
    start = time.monotonic()
    with open(log, "wb") as file:
        command = [options.vramlab, "rehearse", *flags, *options.flags, "--", *words]
        limit = script.get("limit", 300)
        try:
            code = subprocess.run(
                command, cwd=folder / script.get("folder", "."), env=own, stdout=file, stderr=file, stdin=subprocess.DEVNULL, timeout=limit
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    found = json.loads(answer.read_text()) if answer.exists() else {}
    return {"name": script["name"], "code": code, "seconds": round(time.monotonic() - start, 1), **found}


def why_not_exact(found):
    """In a few words, what may have changed a size."""
    kinds = {}
    for read in found.get("unknown_reads", []):
        kind = read["kind"] if read["event"] == "unknown_read" else read["event"]
        if kind not in ("number", "log"):
            kinds[kind] = kinds.get(kind, 0) + 1
    for event in found.get("not_as_on_a_card", []):
        if event["event"] not in HARMLESS:
            kinds[event["event"]] = kinds.get(event["event"], 0) + 1
    words = [f"{count} {kind}" for kind, count in sorted(kinds.items())]
    if found.get("problems"):
        words.append(f"{len(found['problems'])} problems")
    return ", ".join(words)


def row(script, found):
    """A line of the table: peaks of the process that reserved most, in bytes. Commits and commands are in `scripts.toml`."""
    source = script["repository"]
    ranks = found.get("ranks", [])
    if found.get("code") not in (0, 1) or not ranks:
        told = script.get("fails") or found.get("exception") or found.get("error") or f"exit code {found.get('code')}"
        return f"| {script['name']} | {source} | does not run: {told.splitlines()[0][:200]} | | | |"
    most = max(ranks, key=lambda rank: rank["peak_reserved"])
    peaks = f"{most['peak_allocated']:,} / {most['peak_reserved']:,}"
    exact = "yes" if found["exact"] else why_not_exact(found)
    steps = f"{most['steps']} ({found['stopped']})"
    processes = f" x {len(ranks)}" if len(ranks) > 1 else ""
    return f"| {script['name']} | {source} | {peaks}{processes} | {steps} | {exact} | {found['seconds']} |"


def made_up_row(script, found):
    """A line about a script that had nothing: no weights, no data, no network."""
    ranks = found.get("ranks") or []
    most = max(ranks, key=lambda rank: rank["peak_reserved"], default=None) if found.get("code") in (0, 1) else None
    peaks = [most["steps"], most["peak_allocated"], most["peak_reserved"]] if most else ["does not run", "", ""]
    made = "; ".join(found.get("made_up") or []) if most else (found.get("exception") or "see the log").splitlines()[0][:200]
    cells = [script["name"], script["repository"], found.get("seconds", ""), *peaks, script["command"], made]
    return "\t".join(" ".join(str(cell).split()) for cell in cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--vramlab", default=str(HERE.parents[1] / "target" / "debug" / "vramlab"))
    parser.add_argument("--table", type=pathlib.Path)
    parser.add_argument("--made-up", type=pathlib.Path, help="writes a line for each script that had no weights, data or network (`make_data`)")
    parser.add_argument("--flags", type=shlex.split, default=[], help="more flags of `vramlab rehearse`")
    options = parser.parse_args()
    options.work, options.vramlab = options.work.resolve(), os.path.abspath(options.vramlab)
    # Not resolved: a virtual environment's Python is a link.
    options.python = os.path.abspath(shutil.which(options.python) or options.python)
    with open(HERE / "scripts.toml", "rb") as file:
        table = tomllib.load(file)
    scripts = [{"commit": table["repositories"][script["repository"]], **script} for script in table["script"]]
    unknown = set(options.names) - {script["name"] for script in scripts}
    if unknown:
        parser.error(f"no such script: {', '.join(sorted(unknown))}")
    rows, made_up, known, failed = [], [], 0, 0
    for script in scripts:
        if (options.names and script["name"] not in options.names) or (options.made_up and "make_data" not in script):
            continue
        found = rehearse(script, options)
        ran = found["code"] in (0, 1)
        known += not ran and "fails" in script
        failed += not ran and "fails" not in script
        rows.append(row(script, found))
        print(rows[-1], flush=True)
        if "make_data" in script:
            made_up.append(made_up_row(script, found))
    if options.made_up:
        head = "# name\trepository\tseconds\tsteps\tallocated\treserved\tcommand\tmade up\n"
        options.made_up.write_text(head + "".join(line + "\n" for line in made_up))
    if options.table:
        head = "| name | repository | peaks | steps (ended by) | exact | seconds |\n|---|---|---|---|---|---|\n"
        options.table.write_text(head + "\n".join(rows) + "\n")
    print(f"{len(rows) - failed - known} of {len(rows)} ran; of {known} it was known that they do not")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
