#!/usr/bin/env python3
"""Makes attacks on a user's files inside rehearsals, and says what changed, and what a script did not see of its own changes.

    scripts/rehearse/attacks/run.py VRAMLAB PYTHON RESULTS [--way namespace,filter] [--user root,NAME] [--env NAME=VALUE ...] [CASE ...]

The cases are in `cases.toml`: each is a text for bash or for Python, runs in a project of its own, and prints `SAW ok` where it sees its
change and `SAW no` where not. A rehearsal makes a dozen of them. RESULTS is a file of JSON: what stands there is not run again, so that a
run that was ended goes on with the same command. In values of `--env`, `{base}` is the working folder of the rehearsal.
`ATTACKS_PACKAGES` names a folder with h5py, zarr, lmdb and pyarrow. Needs Python 3.11. To run as another user, start it as root.
Exit code 1: something changed. What a script did not see is printed, since a filter refuses what a namespace allows."""

import argparse
import hashlib
import json
import os
import pathlib
import pwd
import re
import shutil
import stat
import subprocess
import sys
import time

import tomllib

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
FACTS = ("mode", "owner", "group", "contents", "written", "changed", "links", "attributes", "number")


def build(root):
    """Makes a project, and a folder beside it."""
    project, outside = root / "project", root / "outside"
    for name in ("data/deep", "out/checkpoint-1", "out/checkpoint-2", "link_target", "emptydir"):
        (project / name).mkdir(parents=True)
    (outside / "ckpt").mkdir(parents=True)
    texts = {"old.txt": b"old contents\n", "data/a.bin": b"a" * 5000, "data/deep/b.bin": bytes(range(256)) * 40, "link_target/x": b"x",
             "out/checkpoint-1/m.pt": b"one", "out/checkpoint-2/m.pt": b"two", "hard1.txt": b"hard", "ro.txt": b"read only"}
    for name, text in texts.items():
        (project / name).write_bytes(text)
    (outside / "ckpt/last.pt").write_bytes(b"precious")
    os.setxattr(project / "hard1.txt", "user.orig", b"1")
    os.link(project / "hard1.txt", project / "hard2.txt")
    (project / "lnk").symlink_to("link_target")
    (project / "up").symlink_to("../outside")
    (project / "ro.txt").chmod(0o444)
    database = "import sqlite3; c = sqlite3.connect('d.db'); c.execute('create table t(x)'); c.execute('insert into t values(1)'); c.commit()"
    subprocess.run([sys.executable, "-c", database], cwd=project, check=True)
    for words in (["init", "-q"], ["add", "old.txt", "data"], ["commit", "-qm", "x"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", project, *words], stdout=subprocess.DEVNULL)


def fact(path):
    """What a path is now, as in `FACTS`."""
    found = os.lstat(path)
    contents = ""
    if stat.S_ISREG(found.st_mode):
        contents = hashlib.sha1(pathlib.Path(path).read_bytes()).hexdigest()
    elif stat.S_ISLNK(found.st_mode):
        contents = os.readlink(path)
    attributes = [(name, os.getxattr(path, name, follow_symlinks=False)) for name in os.listxattr(path, follow_symlinks=False)]
    return (found.st_mode, found.st_uid, found.st_gid, contents, found.st_mtime_ns, found.st_ctime_ns, found.st_nlink, attributes, found.st_ino)


def state(base):
    paths = [base, *(os.path.join(folder, name) for folder, folders, files in os.walk(base) for name in folders + files)]
    return {str(path): fact(path) for path in paths}


def differing(before, after):
    """Names what differs between two states, with the facts that do."""
    lines = [f"{path} is gone" for path in before.keys() - after.keys()] + [f"{path} is new" for path in after.keys() - before.keys()]
    for path in before.keys() & after.keys():
        facts = [name for name, one, other in zip(FACTS, before[path], after[path]) if one != other]
        if facts:
            lines.append(f"{path}: {', '.join(facts)}")
    return sorted(lines)


def scripts(cases, base, beside, python):
    """Writes one script for bash that makes these attacks, each in a project of its own."""
    lines = []
    for number, case in enumerate(cases):
        folder = base / f"{number:03}"
        build(folder)
        script = beside / f"{number:03}.sh"
        if "python" in case:
            text = beside / f"{number:03}.py"
            text.write_text(PREAMBLE + case["python"])
            script.write_text(f"exec {python} {text}")
        else:
            script.write_text(case["bash"])
        lines.append(f"cd {folder}/project; echo 'CASE {number:03}'; timeout 60 bash {script} 2>&1 </dev/null")
    (beside / "run.sh").write_text("\n".join(lines))


def attack(cases, way, user, options):
    """Makes attacks in one rehearsal. Returns for each what changed, what it said, and what was refused; and what holds for all."""
    entry = pwd.getpwnam(user)
    home = entry.pw_dir if os.path.isdir(entry.pw_dir) else "/tmp"
    base, beside = pathlib.Path(home, f"attacks-{way}-{user}"), pathlib.Path(home, f"attacks-{way}-{user}-scripts")
    for folder in (base, beside):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    scripts(cases, base, beside, options.python)
    if user != "root":
        subprocess.run(["chown", "-hR", f"{entry.pw_uid}:{entry.pw_gid}", base, beside], check=True)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
                   "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "VRAMLAB_REHEARSAL_PROTECTION": way}
    for name in ("VRAMLAB_REHEARSAL_LIBRARY", "ATTACKS_PACKAGES"):
        environment |= {name: os.environ[name]} if name in os.environ else {}
    environment |= {name: value.format(base=base) for name, value in (pair.split("=", 1) for pair in options.env)}
    command = [options.vramlab, "rehearse", "--gpu", "8GiB", "--seconds", "600", "--no-values", "--json", beside / "answer.json", "--",
               "bash", beside / "run.sh"]
    if user != "root":
        # Pipes of root's cannot be opened again by their names.
        piped = ["bash", "-c", '"$@" 2>&1 >/dev/null | cat >&2; exit ${PIPESTATUS[0]}', "bash", *command]
        command = ["setpriv", "--reuid", user, "--regid", str(entry.pw_gid), "--init-groups", "--", *piped]
    before = state(base)
    run = subprocess.run(command, cwd=base, env=environment, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    if any("later" in case for case in cases):
        time.sleep(6)
    differs = differing(before, state(base))
    answer = json.loads((beside / "answer.json").read_text()) if (beside / "answer.json").exists() else {}
    parts = re.split(r"CASE (\d+)\n", run.stderr)
    said = dict(zip(parts[1::2], parts[2::2]))
    found = {}
    for number, case in enumerate(cases):
        key, place = f"{number:03}", f"{base}/{number:03}"
        text = said.get(key, "nothing was printed: " + run.stderr[-500:])
        found[case["name"]] = {"changed": [line for line in differs if line.startswith(place)], "said": text.strip()[-300:],
                               "seen": "SAW ok" in text and "SAW no" not in text, "refused": [
                                   path for path in answer.get("refused", []) if path.startswith(place)]}
    rest = [line for line in differs if not re.match(re.escape(str(base)) + r"/\d{3}", line)]
    return found, {"way": answer.get("protection", {}).get("way"), "changed": answer.get("changed"), "rest": rest, "code": run.returncode}


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
    everything = tomllib.loads((HERE / "cases.toml").read_text())["case"]
    wanted = [case for case in everything if not options.cases or case["name"] in options.cases]
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    harmed = 0
    for way in options.way.split(","):
        for user in options.user.split(","):
            done = results.setdefault(" ".join([way, user, *options.env]), {})
            left = [case for case in wanted if case["name"] not in done]
            for start in range(0, len(left), BATCH):
                found, whole = attack(left[start : start + BATCH], way, user, options)
                if whole["way"] != way or whole["changed"] or whole["rest"]:
                    print(f"{way} {user}: {whole}", flush=True)
                    harmed += bool(whole["rest"])
                done.update(found)
                options.results.write_text(json.dumps(results, indent=1))
            for name, one in done.items():
                harmed += bool(one["changed"])
                if one["changed"] or not one["seen"]:
                    listed = f" (listed as refused: {len(one['refused'])})" if not one["seen"] else ""
                    print(f"{way} {user} {name}: {'CHANGED ' + str(one['changed']) if one['changed'] else 'not seen'}{listed} | {one['said']}")
            harm, unseen = (sum(bool(one["changed"]) for one in done.values()), sum(not one["seen"] for one in done.values()))
            print(f"{way} {user} {' '.join(options.env)}: {len(done)} attacks, {harm} changed a file, {unseen} were not seen by the script")
    sys.exit(1 if harmed else 0)


if __name__ == "__main__":
    main()
