#!/usr/bin/env python3
"""Runs ten scripts on the card of this machine and rehearsed, under the same PyTorch, and compares every event of the allocator.

    scripts/rehearse/proof.py LIBRARY PYTHON FILE.json [SCRIPT ...]
    scripts/rehearse/proof.py --without-card LIBRARY PYTHON FILE.json [SCRIPT ...]

LIBRARY is libvramlab_rehearsal.so; PYTHON has PyTorch for CUDA. The rehearsed card gets the name, the memory, the capability and
the multiprocessors of the real one. Scripts are those of `own/` that take one card. FILE.json itemises each deviation:
events that one side alone has, by their place in the list and the step. Exit codes: 0 all the same, 1 something deviates,
77 this machine has no card.

--without-card tries the comparison itself: both sides are rehearsed and must be the same, and lists in which something was
changed must not be."""

import difflib
import json
import os
import pathlib
import shutil
import sys
import tempfile

import recording

OWN = pathlib.Path(__file__).resolve().parent / "own"
SCRIPTS = ["accumulate", "cnn_amp", "detector", "gpt_checkpointed", "graph", "lora", "optimizers", "padded", "rnn", "varying"]
SKIPPED = 77
# Maximum number of deviations per script, and of events per deviation, that are written.
MOST, SHOWN = 200, 8
# What is rehearsed without a card.
SOME_CARD = {"name": "NVIDIA H200", "memory": 150_000_000_000, "capability": "9.0", "multiprocessors": 132}


def step_of(events, index, steps):
    """The optimizer step, counted from 0, in which an event happened."""
    allocated = sum(event[0] == "alloc" for event in events[:index])
    return sum(allocated > step for step in steps)


def compare(real, rehearsed):
    """What deviates between two recordings of a script; nothing in the lists says that they are the same."""
    one, other = recording.comparable(real["events"]), recording.comparable(rehearsed["events"])
    what, other_what = [event[:2] for event in one], [event[:2] for event in other]
    deviations, count = [], 0
    # Long lists that are the same at both ends are compared in between.
    start = next((index for index, pair in enumerate(zip(what, other_what)) if pair[0] != pair[1]), min(len(what), len(other_what)))
    end = 0
    while end < min(len(what), len(other_what)) - start and what[-1 - end] == other_what[-1 - end]:
        end += 1
    matcher = difflib.SequenceMatcher(None, what[start:len(what) - end], other_what[start:len(other_what) - end], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            continue
        count += 1
        if count <= MOST:
            deviations.append({"at": [start + a, start + c], "step": step_of(one, start + a, real["steps"]), "real_count": b - a, "rehearsed_count": d - c,
                               "real": what[start + a:start + b][:SHOWN], "rehearsed": other_what[start + c:start + d][:SHOWN]})
    moved = sum(x != y for x, y in zip(one, other)) if what == other_what else None
    same_end = real["ended_by"] == rehearsed["ended_by"]
    return {
        "same": not count and not moved and real["peaks"] == rehearsed["peaks"] and same_end,
        "events": [len(one), len(other)], "peaks": {"real": real["peaks"], "rehearsed": rehearsed["peaks"]},
        "ended_by": [real["ended_by"], rehearsed["ended_by"]], "deviating": count, "deviations": deviations,
        # Events of the same bytes in another place of a segment; not counted where the events themselves deviate.
        "elsewhere": moved,
    }


def doctored(found):
    """Copies of a recording with one thing changed in each, by what that is."""
    events = found["events"]
    middle = [index for index, event in enumerate(events) if event[0] == "alloc"][len(found["steps"]) or 1]
    action, size, address = events[middle]

    def changed(*made):
        return {**found, "events": events[:middle] + list(made) + events[middle + 1:]}

    return {
        "an event with other bytes": changed([action, size + 512, address]),
        "an event that is missing": changed(),
        "an event that is there twice": changed(events[middle], events[middle]),
        "an event in another place": changed([action, size, address + 512]),
        "another peak": {**found, "peaks": [found["peaks"][0] + 512, found["peaks"][1]]},
        "another end": {**found, "ended_by": "MemoryError: "},
        "no events": {**found, "events": []},
    }


def main():
    words = [word for word in sys.argv[1:] if word != "--without-card"]
    is_trial = len(words) < len(sys.argv) - 1
    if len(words) < 3:
        sys.exit(__doc__)
    library, python, target = os.path.abspath(words[0]), os.path.abspath(shutil.which(words[1]) or words[1]), pathlib.Path(words[2])
    failed = []
    proof: dict = {"schema": "vramlab-rehearsal-proof-1", "torch": None, "card": None, "real": not is_trial, "scripts": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in words[3:] or SCRIPTS:
            script = [str(OWN / f"{name}.py")]
            real = recording.record(python, script, recording.environment(library, folder, SOME_CARD) if is_trial else {}, folder)
            if isinstance(real, list):
                if not is_trial and not proof["scripts"]:
                    print(f"skipped: {real[0]}")
                    sys.exit(SKIPPED)
                sys.exit(f"{name}: {real[0]}")
            proof["card"], proof["torch"] = real["card"], real["torch"]
            rehearsed = recording.record(python, script, recording.environment(library, folder, real["card"]), folder)
            if isinstance(rehearsed, list):
                proof["scripts"].append({"name": name, "same": False, "problem": rehearsed[0]})
            else:
                proof["scripts"].append({"name": name, **compare(real, rehearsed)})
            found = proof["scripts"][-1]
            same_card = not isinstance(rehearsed, list) and rehearsed["card"] == real["card"]
            if not same_card:
                found["same"], found["card"] = False, None if isinstance(rehearsed, list) else rehearsed["card"]
            told = "the same" if found["same"] else found.get("problem") or f"{found['deviating']} deviations, {found['elsewhere']} elsewhere"
            print(f"{name}: {found.get('events', ['?'])[0]} events, {told}", flush=True)
            if not found["same"]:
                failed.append(name)
            for change, other in doctored(real).items() if is_trial else ():
                if compare(real, other)["same"]:
                    failed.append(f"{name}: {change} is not seen")
    beside = target.with_name(target.name + ".part")
    beside.write_text(json.dumps(proof, indent=1) + "\n")
    os.replace(beside, target)
    for line in failed:
        print("deviates:", line)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
