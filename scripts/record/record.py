#!/usr/bin/env python3
"""Records what the tests compare with: the real PyTorch, on a card that is not there.

    python scripts/record/record.py KIND [NAME ...] --vramlab PROGRAM --into FOLDER     FOLDER/NAME.json.gz for each
    python scripts/record/record.py KIND --list                                         the names
    python scripts/record/record.py KIND [NAME ...] --vramlab PROGRAM --prove            records twice; says whether both are the same bytes,
                                                                                        and what differs from the committed file
    python scripts/record/record.py models FAMILY --cases CASES.json …                  a family that is not committed yet

Kinds: `models` (a family of transformers), `scripts` (trainings, operators and optimizers, with every event), `loops` (`scripts/loop`), `traces` (the
allocator alone), `exports` (`scripts/export`), `optimizers` (values of every optimizer, on the host), `techniques` (programs with the flags that say the
same, `scripts/loop/techniques.py`). `--python` names the Python with PyTorch. Files that
are there already are left alone, and of `techniques` what is missing in them is recorded: what was interrupted goes on. Exit code 1: something failed, or two runs differ."""
import argparse
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MARK = "RECORDED "
# Where the committed files of each kind are.
COMMITTED = {
    "models": ROOT / "lab/imports/tests/golden/models",
    "scripts": ROOT / "lab/tests/golden",
    "loops": ROOT / "lab/tests/golden",
    "traces": ROOT / "memcore/tests/golden/traces",
    "exports": ROOT / "lab/imports/tests/golden/exported",
    "optimizers": ROOT / "conformance/golden",
    "techniques": ROOT / "lab/tests/golden",
}
# A card of 140 GiB and compute capability 9.0 without cuDNN, as the recordings had. Nothing ends the program before its end.
REHEARSE = ["rehearse", "--gpu", "140GiB", "--cudnn", "none", "--steps", "1000000000", "--no-stacks", "--no-needs"]


def packed(recording):
    """A recording as a file."""
    return gzip.compress(json.dumps(recording, separators=(",", ":")).encode(), mtime=0)


def unpacked(path):
    """The recording in a file, compressed or not."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def committed(kind, name):
    """The committed file of a recording; None if there is none."""
    found = [path for ending in (".json.gz", ".json") if (path := COMMITTED[kind] / (name + ending)).exists()]
    return found[0] if found else None


def rehearsed(given, kind, cases, variables=()):
    """Runs cases inside of a rehearsal, and returns their recordings by name."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cases.json"
        path.write_text(json.dumps(cases))
        words = [given.vramlab, *REHEARSE, "--", "env", *variables, given.python, str(HERE / "inside.py"), kind, str(path)]
        # What the program prints stands on the launcher's standard error, the answer on its standard output.
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment())
    lines = done.stderr.splitlines()
    found = [json.loads(line[len(MARK):]) for line in lines if line.startswith(MARK)]
    if len(found) < len(cases):
        print(*[line for line in lines if not line.startswith(MARK)][-12:], sep="\n", file=sys.stderr)
    return {one["name"]: one for one in found}


def environment():
    """The environment of a rehearsal, without what decides what is allocated."""
    deciding = ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING")
    own = {name: value for name, value in os.environ.items() if name not in deciding}
    # Some programs use the package for Python.
    path = os.pathsep.join([str(ROOT / "python"), *filter(None, [own.get("PYTHONPATH")])])
    return {**own, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}


def listed(given, script, *words):
    """What a script prints, a name a line, in the Python with PyTorch."""
    done = subprocess.run([given.python, str(script), *words], capture_output=True, text=True, check=True)
    return done.stdout.split()


def of_programs(given, names):
    """Kind `scripts`: programs with the same environment in one rehearsal."""
    text = subprocess.run([given.python, str(HERE / "programs.py"), "--environments"], capture_output=True, text=True, check=True).stdout
    environments = json.loads(text)
    groups: dict = {}
    for name in names:
        groups.setdefault(tuple(sorted(environments[name].items())), []).append(name)
    for variables, some in groups.items():
        found = rehearsed(given, "scripts", [{"name": name} for name in some], [f"{key}={value}" for key, value in variables])
        yield from ((name, found.get(name)) for name in some)


def of_loops(given, names):
    """Kind `loops`."""
    for name in names:
        yield name, rehearsed(given, "loops", [{"name": name}]).get(name)


def of_models(given, names):
    """Kind `models`: the cases of a family, which are those of its committed file unless they are given."""
    for family in names:
        path = pathlib.Path(given.cases) if given.cases else committed("models", family)
        cases = json.loads(path.read_text()) if given.cases else unpacked(path)["runs"]
        cases = [case for case in cases if not given.case or case["name"] in given.case]
        runs = rehearsed(given, "models", cases)
        made = [{"name": case["name"], "family": family, **runs[case["name"]]} for case in cases if case["name"] in runs]
        left = [case["name"] for case in cases if case["name"] not in runs]
        if left:
            print(f"{family}: not recorded: {', '.join(left)}", file=sys.stderr)
        yield family, made and {"format": "oracle-models-1", "family": family, "runs": made}


# Programs of a group in one rehearsal, after which the file is written.
AT_ONCE = 8


def of_techniques(given, names):
    """Kind `techniques`: the programs of a group that its file lacks, with their fields; the whole file after some of them."""
    for name in names:
        cases = json.loads(subprocess.run([given.python, str(ROOT / "scripts/loop/techniques.py"), name], capture_output=True, text=True, check=True).stdout)
        path = pathlib.Path(given.into, name + ".json.gz") if given.into else None
        found = {one["name"]: one for one in unpacked(path)["programs"]} if path and path.exists() else {}
        new = [case for case in cases if case["name"] not in found]
        for first in range(0, len(new), AT_ONCE):
            found |= rehearsed(given, "techniques", new[first:first + AT_ONCE])
            if found:
                yield name, {"format": "vramlab-techniques-1", "programs": [found[case["name"]] for case in cases if case["name"] in found]}
        left = [case["name"] for case in cases if case["name"] not in found]
        if left:
            print(f"{name}: not recorded: {', '.join(left)}", file=sys.stderr)
            yield name, None


def of_traces(given, names):
    """Kind `traces`: the operations of the committed file."""
    sys.path.insert(0, str(HERE))
    import traces

    for name in names:
        trace = unpacked(committed("traces", name))
        problem = traces.problem(trace)
        if problem:
            print(f"{name}: {problem}", file=sys.stderr)
        variables = [f"VRAMLAB_REHEARSAL_MEMORY={trace['capacity']}"] + ([f"PYTORCH_ALLOC_CONF={trace['alloc_conf']}"] if trace["alloc_conf"] else [])
        yield name, None if problem else rehearsed(given, "traces", [trace], variables).get(name)


def of_exports(given, names):
    """Kind `exports`: the recording beside an export; the export itself is compared by `scripts/export/anew.py`."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder) / "kept"
            script = [given.python, str(ROOT / "scripts/export/record.py"), ".", name]
            work = pathlib.Path(folder) / "work"
            work.mkdir()
            words = [given.vramlab, *REHEARSE, "--keep-outputs", str(kept), "--", *script]
            subprocess.run(words, stdout=subprocess.DEVNULL, cwd=work, env=environment())
            found = [*kept.rglob(name + ".json")] or [*work.rglob(name + ".json")]
            yield name, json.loads(found[0].read_text()) if found else None


def of_optimizers(given, names):
    """Kind `optimizers`: values, which need no card. Their last bits depend on the processor's instructions, of which all use the same here."""
    script = str(ROOT / "conformance/golden/optimizers.py")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([given.python, script], capture_output=True, text=True, cwd=folder, env={**os.environ, "ATEN_CPU_CAPABILITY": "avx2"})
    yield names[0], json.loads(done.stdout) if done.returncode == 0 else None


def names_of(given):
    """All names of a kind."""
    if given.kind == "scripts":
        return listed(given, HERE / "programs.py")
    if given.kind == "loops":
        return listed(given, ROOT / "scripts/loop/loop_record.py", "--list")
    if given.kind == "optimizers":
        return ["optimizers"]
    if given.kind == "techniques":
        return listed(given, ROOT / "scripts/loop/techniques.py")
    return sorted({path.name.split(".json")[0] for path in COMMITTED[given.kind].iterdir() if ".json" in path.name})


KINDS = {"models": of_models, "scripts": of_programs, "loops": of_loops, "traces": of_traces, "exports": of_exports, "optimizers": of_optimizers,
         "techniques": of_techniques}


def run_of(run):
    """What a run is called: optimizers have runs of the same name."""
    return " ".join([*([run["optimizer"]] if "optimizer" in run else []), run["name"]])


def differing(new, old):
    """The keys in which two recordings differ; of runs, with their names."""
    if isinstance(new, dict) and isinstance(old, dict):
        if isinstance(new.get("runs"), list) and isinstance(old.get("runs"), list):
            before = {run_of(run): run for run in old["runs"]}
            pairs = [(run_of(run), differing(run, before[run_of(run)])) for run in new["runs"] if run_of(run) in before]
            return [f"{name}: {keys}" for name, keys in pairs if keys]
        return sorted(key for key in new.keys() & old.keys() if new[key] != old[key])
    return [] if new == old else ["everything"]


def prove(given, names):
    """Records everything twice. Returns the number of failures."""
    failures = 0
    for name in names:
        pair = [dict(KINDS[given.kind](given, [name])).get(name) for _ in range(2)]
        if not all(pair):
            print(f"{name}: not recorded")
            failures += 1
            continue
        same, path = packed(pair[0]) == packed(pair[1]), committed(given.kind, name)
        others = differing(pair[0], unpacked(path)) if path else None
        against = "nothing is committed" if others is None else f"differs from the committed file in {', '.join(others)}" if others else "as committed"
        print(f"{name}: {'two runs give the same bytes' if same else 'TWO RUNS DIFFER'}; {against}", flush=True)
        failures += not same
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--vramlab", default="vramlab", help="the program")
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch for CUDA")
    parser.add_argument("--into", help="the folder for the files")
    parser.add_argument("--cases", help="cases of a family: a list of {name, class, config, batch, seq, options}")
    parser.add_argument("--case", action="append", help="only this case of a family")
    parser.add_argument("--list", action="store_true", help="print the names of the kind")
    parser.add_argument("--prove", action="store_true", help="record twice and compare")
    given = parser.parse_args()
    given.vramlab = str(pathlib.Path(given.vramlab).resolve()) if os.sep in given.vramlab else given.vramlab
    if given.list:
        print(*names_of(given), sep="\n")
        return 0
    names = given.names or names_of(given)
    if given.prove:
        return int(prove(given, names) > 0)
    if not given.into:
        parser.error("--into FOLDER, or --prove")
    folder = pathlib.Path(given.into)
    folder.mkdir(parents=True, exist_ok=True)
    left = [name for name in names if given.kind == "techniques" or not (folder / f"{name}.json.gz").exists()]
    failed = []
    for name, recording in KINDS[given.kind](given, left):
        if recording:
            part = folder / f"{name}.json.gz.part"
            part.write_bytes(packed(recording))
            part.rename(folder / f"{name}.json.gz")
        else:
            failed.append(name)
        print(name, "recorded" if recording else "FAILED", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
