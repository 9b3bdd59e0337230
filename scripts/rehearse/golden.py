#!/usr/bin/env python3
"""Runs the programs whose events were recorded on another stand-in driver under the rehearsal's library, and compares every event.

    scripts/rehearse/golden.py LIBRARY PYTHON FOLDER [NAME ...]

FOLDER has `recorded_scripts.py` and `scripts/*.json` (format oracle-script-1: events by letter, with sizes and addresses), PYTHON
the release of PyTorch that they name. Each program runs under the settings that its recording names. The table goes to
standard output, in Markdown. Exit code 1: an event differs, or a program did not run."""

import json
import os
import pathlib
import shutil
import sys
import tempfile

import recording

ACTIONS = {"a": "alloc", "S": "segment_alloc", "F": "segment_free", "M": "segment_map", "U": "segment_unmap", "o": "oom", "s": "snapshot"}
# What the recordings' driver was told by variables, under the names of the rehearsal's library.
NAMES = {"FAKECUDNN_WS": "VRAMLAB_REHEARSAL_CUDNN_WORKSPACE"}
# It calls functions of the recordings' own driver.
NOT_RUN = {"i_streams": "holds events back by a function of the driver that recorded it"}


def recorded(found):
    """A recording's events, as `recording.py` writes them."""
    events, allocated = [], []
    sizes, addresses, freed = iter(found["ev_size"]), iter(found["ev_addr512"]), iter(found["ev_free_ref"])
    for letter in found["ev"]:
        if letter == "f":
            size, address = allocated[next(freed)]
            events += [["free_requested", size, address], ["free_completed", size, address]]
            continue
        # Far from 0: the rehearsal's addresses are, too.
        size, address = next(sizes), (next(addresses) << 9) + (1 << 40)
        if letter == "a":
            allocated.append((size, address))
        events.append([ACTIONS[letter], size, address])
    return events


def settings(found):
    """The card and the variables of a recording."""
    own = {NAMES.get(key, key): value for key, value in found["env"].items() if not key.startswith("FAKECUDA")}
    capability = found["device"].rsplit("sm_", 1)[1]
    return {"memory": found["capacity"], "capability": f"{capability[:-1]}.{capability[-1]}"}, own


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    library, python, folder = os.path.abspath(sys.argv[1]), os.path.abspath(shutil.which(sys.argv[2]) or sys.argv[2]), pathlib.Path(sys.argv[3]).resolve()
    print("| program | events | compared |\n|---|---|---|", flush=True)
    wrong = total = same = 0
    with tempfile.TemporaryDirectory() as run:
        for path in sorted((folder / "scripts").glob("*.json")):
            name = path.stem
            if sys.argv[4:] and name not in sys.argv[4:]:
                continue
            if name in NOT_RUN:
                print(f"| {name} | | not run: {NOT_RUN[name]} |", flush=True)
                continue
            found = json.loads(path.read_text())
            card, own = settings(found)
            # The recordings' own stand-in answered for cuDNN.
            variables = recording.environment(library, run, card) | {"VRAMLAB_REHEARSAL_CUDNN": "none"} | own
            here = recording.record(python, [str(folder / "recorded_scripts.py"), name], variables, run)
            if isinstance(here, list):
                wrong += 1
                print(f"| {name} | | does not run: {here[0][:200]} |", flush=True)
                continue
            want, got = recording.comparable(recorded(found)), recording.comparable(here["events"])
            first = next((index for index, pair in enumerate(zip(want, got)) if pair[0] != pair[1]), min(len(want), len(got)))
            is_same = want == got
            wrong, same, total = wrong + (not is_same), same + is_same, total + len(want)
            told = "the same" if is_same else f"event {first}: recorded {want[first:first + 1]}, here {got[first:first + 1]}"
            print(f"| {name} | {len(want)} | {told} |", flush=True)
    print(f"\n{same} programs have the same events, {wrong} do not; {total} events")
    sys.exit(1 if wrong or not same else 0)


if __name__ == "__main__":
    main()
