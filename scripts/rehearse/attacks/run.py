#!/usr/bin/env python3
"""Makes attacks on a user's files inside rehearsals, and says what changed, and what a script did not see of its own changes.

    scripts/rehearse/attacks/run.py VRAMLAB PYTHON RESULTS [--way namespace,filter] [--user root,NAME] [--env NAME=VALUE ...] [CASE ...]

The cases are in `cases.toml` (what programs do) and `system.toml` (what is aimed at the protection): each is a text for bash or for
Python, runs in a project of its own, and prints `SAW ok` where it sees its change and `SAW no` where not. A rehearsal makes a dozen of
them. RESULTS is a file of JSON: what stands there is not run again, so that a run that was ended goes on with the same command. In values
of `--env`, `{base}` is the working folder of the rehearsal. `ATTACKS_PACKAGES` names a folder with h5py, zarr, lmdb and pyarrow. Needs
Python 3.11. To run as another user, and for small disks, start it as root. Exit code 1: something changed, a process outside was ended or
reached, or a full disk was not told. What a script did not see is printed, since a filter refuses what a namespace allows."""

import argparse
import contextlib
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import time

import tomllib
from project import build, differing, make_stores, state

HERE = pathlib.Path(__file__).resolve().parent
BATCH = 12
PREAMBLE = """import ctypes, os, shutil, subprocess, sys
sys.path[:0] = [name for name in os.environ.get("ATTACKS_PACKAGES", "").split(":") if name]
LIBC = ctypes.CDLL(None, use_errno=True)
def read(path):
    try:
        return open(path, "rb").read()
    except OSError as error:
        return type(error).__name__
def saw(seen, *words):
    print("SAW", "ok" if seen else "no", *words, flush=True)
"""
NOBODY = 65534
# Words that an answer has if the folder for temporary files was full.
FULL = "no room was left"


def scripts(cases, base, beside, python, stores):
    """Writes one script for bash that makes these attacks, each in a project of its own."""
    lines = []
    for number, case in enumerate(cases):
        folder = base / f"{number:03}"
        build(folder, case, stores)
        script = beside / f"{number:03}.sh"
        if "python" in case:
            text = beside / f"{number:03}.py"
            text.write_text(PREAMBLE + case["python"])
            script.write_text(f"exec {python} {text}")
        else:
            script.write_text(case["bash"])
        lines.append(f"cd {folder}/project; echo 'CASE {number:03}'; timeout 60 bash {script} 2>&1 </dev/null")
    (beside / "run.sh").write_text("\n".join(lines))


@contextlib.contextmanager
def outside(entry, base):
    """Processes outside of the rehearsal, which its script must neither reach nor end: of the user, and for root also of nobody and of
    root without rights."""
    waits = ["bash", "-c", "exec -a attacks-victim sleep 100000"]
    become = ["setpriv", "--reuid", str(entry.pw_uid), "--regid", str(entry.pw_gid), "--clear-groups"] if entry.pw_uid else []
    kinds = [become] if become or os.getuid() else [[], ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"],
                                                    ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]]
    started = [subprocess.Popen([*kind, *waits], cwd=base, start_new_session=True, stdin=subprocess.DEVNULL) for kind in kinds]
    try:
        time.sleep(0.2)
        yield started
    finally:
        for one in started:
            one.kill()
            one.wait()


def is_running(name):
    """True if a program of this name runs. Tries a few times: one that goes on in its children is hard to see."""
    def runs():
        states = subprocess.run(["ps", "-C", name, "-o", "stat="], capture_output=True, text=True).stdout.split()
        return any(not state.startswith("Z") for state in states)
    return any(runs() for _ in range(5))


@contextlib.contextmanager
def small_disk(size):
    """A folder for temporary files on a disk of this size; nothing without a size."""
    if size is None:
        yield {}
        return
    place = pathlib.Path("/tmp/attacks-small-disk")
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=1777", "small", place], check=True)
    try:
        yield {"TMPDIR": str(place)}
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def environment_of(way, home, base, started, options):
    pids = ",".join(str(one.pid) for one in started)
    found = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": home, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
             "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "VRAMLAB_REHEARSAL_PROTECTION": way, "ATTACKS": str(HERE),
             "BASE": str(base), "OUTSIDE": pids, "VICTIMS": pids}
    for name in ("VRAMLAB_REHEARSAL_LIBRARY", "ATTACKS_PACKAGES"):
        found |= {name: os.environ[name]} if name in os.environ else {}
    return found | {name: value.format(base=base) for name, value in (pair.split("=", 1) for pair in options.env)}


def rehearse(cases, way, user, options, base, beside):
    """Makes attacks in one rehearsal. Returns the files that differ, the answer, what was printed, and whom it ended."""
    entry = pwd.getpwnam(user)
    home = entry.pw_dir if os.path.isdir(entry.pw_dir) else "/tmp"
    command = [options.vramlab, "rehearse", "--gpu", "8GiB", "--seconds", "600", "--no-values", "--json", beside / "answer.json", "--",
               "bash", beside / "run.sh"]
    if user != "root":
        # Pipes of root's cannot be opened again by their names.
        piped = ["bash", "-c", '"$@" 2>&1 >/dev/null | cat >&2; exit ${PIPESTATUS[0]}', "bash", *command]
        command = ["setpriv", "--reuid", user, "--regid", str(entry.pw_gid), "--init-groups", "--", *piped]
    with outside(entry, base) as started, small_disk(cases[0].get("room")) as disk:
        environment = environment_of(way, home, base, started, options) | disk
        before = state(base)
        run = subprocess.run(command, cwd=base, env=environment, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
        left = [name for case in cases if (name := case.get("ends")) and is_running(name)]
        if any("later" in case for case in cases):
            time.sleep(6)
        differs = differing(before, state(base))
        ended = [f"{name} still runs" for name in left] + [f"process {one.pid} outside was ended by signal {-one.returncode}" for one in started if one.poll() is not None]
    answer = json.loads((beside / "answer.json").read_text()) if (beside / "answer.json").exists() else {}
    return differs, answer, run, ended


def attack(cases, way, user, options, stores):
    """Makes attacks in one rehearsal. Returns for each what changed, what it said, and what was refused; and what holds for all."""
    entry = pwd.getpwnam(user)
    home = entry.pw_dir if os.path.isdir(entry.pw_dir) else "/tmp"
    base, beside = pathlib.Path(home, f"attacks-{way}-{user}"), pathlib.Path(home, f"attacks-{way}-{user}-scripts")
    for folder in (base, beside):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    scripts(cases, base, beside, options.python, stores)
    if user != "root":
        subprocess.run(["chown", "-hR", f"{entry.pw_uid}:{entry.pw_gid}", base, beside], check=True)
    differs, answer, run, ended = rehearse(cases, way, user, options, base, beside)
    parts = re.split(r"CASE (\d+)\n", run.stderr)
    said = dict(zip(parts[1::2], parts[2::2]))
    found = {}
    for number, case in enumerate(cases):
        key, place = f"{number:03}", f"{base}/{number:03}"
        text = said.get(key, "nothing was printed: " + run.stderr[-500:])
        changed = [line for line in differs if line.startswith(place)]
        changed += re.findall("HARM.*", text) + (ended if "VICTIMS" in str(case) or len(cases) == 1 else [])
        if "room" in case and not any(FULL in problem for problem in answer.get("problems", [])):
            changed.append("that the disk was full is not told")
        found[case["name"]] = {"changed": changed, "said": text.strip()[-300:], "seen": "SAW ok" in text and "SAW no" not in text,
                               "refused": [path for path in answer.get("refused", []) if path.startswith(place)]}
    rest = [line for line in differs if not re.match(re.escape(str(base)) + r"/\d{3}", line)]
    return found, {"way": answer.get("protection", {}).get("way"), "changed": answer.get("changed"), "rest": rest, "code": run.returncode}


def groups(cases):
    """Divides attacks among rehearsals."""
    alone = [case for case in cases if "alone" in case or "room" in case]
    others = [case for case in cases if case not in alone]
    return [others[start : start + BATCH] for start in range(0, len(others), BATCH)] + [[case] for case in alone]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vramlab", type=os.path.abspath)
    parser.add_argument("python", type=os.path.abspath)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--way", default="namespace,filter")
    parser.add_argument("--user", default="root")
    parser.add_argument("--env", action="append", default=[])
    options = parser.parse_intermixed_args()
    everything = [case for name in ("cases.toml", "system.toml") for case in tomllib.loads((HERE / name).read_text())["case"]]
    wanted = [case for case in everything if not options.cases or case["name"] in options.cases]
    stores = make_stores(options.python, PREAMBLE)
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    harmed = 0
    for way in options.way.split(","):
        for user in options.user.split(","):
            done = results.setdefault(" ".join([way, user, *options.env]), {})
            for cases in groups([case for case in wanted if case["name"] not in done]):
                found, whole = attack(cases, way, user, options, stores)
                # Who kills the command leaves no answer.
                if (whole["way"] != way and whole["way"]) or whole["changed"] or whole["rest"]:
                    print(f"{way} {user}: {whole}", flush=True)
                    harmed += bool(whole["rest"])
                done.update(found)
                options.results.write_text(json.dumps(results, indent=1))
            harmed += report(way, user, options, done)
    sys.exit(1 if harmed else 0)


def report(way, user, options, done):
    """Prints what changed and what was not seen. Returns the number of attacks that changed something."""
    for name, one in done.items():
        if one["changed"] or not one["seen"]:
            listed = f" (listed as refused: {len(one['refused'])})" if not one["seen"] else ""
            print(f"{way} {user} {name}: {'CHANGED ' + str(one['changed']) if one['changed'] else 'not seen'}{listed} | {one['said']}")
    harm, unseen = (sum(bool(one["changed"]) for one in done.values()), sum(not one["seen"] for one in done.values()))
    print(f"{way} {user} {' '.join(options.env)}: {len(done)} attacks, {harm} changed a file, {unseen} were not seen by the script")
    return harm


if __name__ == "__main__":
    main()
