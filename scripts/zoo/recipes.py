"""Asks `vramlab predict` about each recipe of a trainer, without the trainer, and counts what came.

    python recipes.py PROGRAM FOLDER...    each folder: the examples of a trainer's repository

A recipe is answered, or is no training of one network, or has keys that are not supported, which are counted, or names a network without a
configuration here. PYTHON names an interpreter with PyTorch's wheel for CUDA and transformers: what it can build counts, too, without being trained.
"""
import collections
import os
import re
import subprocess
import sys


def asked(words, by_python=False):
    """Runs the program, which starts no Python unless it may."""
    environment = {name: value for name, value in os.environ.items() if name != "VRAMLAB_ONLY_BUILT_IN"}
    environment.update({"HF_HUB_OFFLINE": "1"} if by_python else {"VRAMLAB_ONLY_BUILT_IN": "1"})
    return subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def outcome(program, path, cards=None):
    """What came of a recipe, on so many cards if it divides a step: a word, and the unsupported keys."""
    words = [program, "predict", path, "--gpu", "8TiB"] + (["--data-parallel", str(cards)] if cards else [])
    ran = asked(words)
    if "only a config.json of transformers has it" in ran.stderr and os.environ.get("PYTHON"):
        ran = asked([program, "predict", path, "--python", os.environ["PYTHON"], "--script"], by_python=True)
        if ran.returncode == 0:
            return "answered by a Python", []
    if ran.returncode in (0, 1) and not ran.stderr.strip().split("\n")[-1].startswith("error"):
        return "answered for %d cards" % cards if cards else "answered", []
    said = next((line for line in ran.stderr.splitlines() if line.startswith("error")), ran.stderr[-300:])
    if "says not how many" in said:
        return outcome(program, path, 8)
    missing = re.search(r"vramlab does not count (.*?); with \S+ in a Python", said)
    if missing:
        return "unsupported keys", [re.split(r"[=:]", one)[0].strip() for one in re.split(r", (?=[\w.]+[=:])", missing.group(1))]
    for sign, word in (("does not name a network", "no network"), ("neither a folder here", "network not here"), ("not support", "network not built in"),
                       ("is not built in", "network not built in"), ("not a training", "no training"), ("no trainer that vramlab knows", "no recipe"),
                       ("configures accelerate", "no recipe"), ("none of its names", "no recipe"), ("second version", "LLaMA-Factory's second version"),
                       ("only a config.json of transformers has it", "a network for a Python")):
        if sign in said:
            return word, []
    return "error: " + said.replace(path, "")[:120], []


def main():
    program, *folders = sys.argv[1:]
    for folder in folders:
        paths = sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith((".yaml", ".yml")))
        words, keys, alone = collections.Counter(), collections.Counter(), collections.Counter()
        for path in paths:
            word, missing = outcome(program, path)
            words[word] += 1
            keys.update(set(missing))
            alone.update(set(missing) if len(set(missing)) == 1 else ())
            if os.environ.get("EACH"):
                print("%s\t%s\t%s" % (os.path.relpath(path, folder), word, ", ".join(missing)))
        print("%s: %d files: %s" % (folder, len(paths), ", ".join("%d %s" % (count, word) for word, count in words.most_common())))
        print("  unsupported keys: %s" % ", ".join("%s %d (%d alone)" % (key, count, alone[key]) for key, count in keys.most_common(16)))


if __name__ == "__main__":
    main()
