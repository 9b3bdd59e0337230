#!/usr/bin/env python3
"""Records training loops that are not one batch after another of one size, on the real PyTorch.

    python scripts/loop/record.py FOLDER [NAME ...]      FOLDER/NAME.json.gz for each program of loops.py, formats.py, adversaries.py, parallel.py and tuned.py

A card is needed, or a stand-in for one: no figure depends on what is computed. (Programs with cuDNN and those of parallel.py were recorded on the
library of `vramlab rehearse`, with plans of cuDNN that take no workspace.) A file has the format of lab/tests/golden/README.md. Each program
runs twice, each time in a process of its own: as it is, and under the profiler, which knows who made and who freed each block."""
import gzip
import json
import os
import sys
import tempfile
import traceback

import torch

import adversaries
import formats
import loops
import parallel
import tuned

PROGRAMS = {**loops.LOOPS, **formats.LOOPS, **adversaries.LOOPS, **parallel.LOOPS, **tuned.LOOPS}

COLUMNS = ["label", "allocated", "max_allocated", "reserved", "max_reserved", "phase_peak_allocated", "requested", "active",
           "inactive_split", "segments", "n_alloc_plus_free"]
ACTIONS = {"alloc": "a", "free_requested": "q", "free_completed": "c", "segment_alloc": "S", "segment_free": "F", "oom": "o"}


class Rows:
    """Takes a row per call."""

    def __init__(self):
        self.taken, self.highest, self.most_reserved = [], 0, 0

    def __call__(self, label):
        stats = torch._C._cuda_memoryStats(0)
        peak, reserved = stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]
        self.highest, self.most_reserved = max(self.highest, peak), max(self.most_reserved, reserved)
        changes = stats["allocation"]["all"]["allocated"] + stats["allocation"]["all"]["freed"]
        self.taken.append([label, torch.cuda.memory_allocated(), self.highest, torch.cuda.memory_reserved(), self.most_reserved, peak,
                           stats["requested_bytes"]["all"]["current"], stats["active_bytes"]["all"]["current"],
                           stats["inactive_split_bytes"]["all"]["current"], stats["segment"]["all"]["current"], changes])
        torch.cuda.reset_peak_memory_stats()


def label(path):
    """Who made or freed a block, as the other recordings name it."""
    names = []
    for index, name in enumerate(path):
        if name.startswith("autograd::engine::evaluate_function: "):
            name = name.split(": ", 1)[1]
            if path[index + 1:index + 2] == (name,):
                continue
            name += "."
        elif name.startswith("aten::empty"):
            continue
        name = name.replace("aten::", "").replace("torch::autograd::", "").replace("Optimizer.step#", "").replace("Optimizer.zero_grad#", "zero_grad:")
        if not names or names[-1] != name:
            names.append(name)
    return ">".join(names[:2] + names[-1:] if len(names) > 3 else names)


def marks(profile):
    """The signed size of each change, and who made it, in order."""
    found = []

    def walk(event, path):
        if event.name == "[memory]":
            if "cuda" in str(event.extra_fields.device):
                found.append((event.start_time_ns, event.extra_fields.alloc_size, path))
        else:
            path += (event.name,)
        for child in event.children:
            walk(child, path)
    for event in profile.profiler.kineto_results.experimental_event_tree():
        walk(event, ())
    return [(size, label(path)) for _, size, path in sorted(found, key=lambda mark: mark[0])]


def run(name, profiled):
    """The rows of a program and what its allocator did."""
    torch.backends.cudnn.enabled = "cudnn" in name
    rows = Rows()
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=1 << 20)
    torch.manual_seed(0)
    told = []
    if profiled:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            program = PROGRAMS[name](rows)
            rows("end")
        told = marks(profile)
    else:
        program = PROGRAMS[name](rows)
        rows("end")
    events = [[ACTIONS[event["action"]], event["size"], event.get("addr", 0)] for event in torch.cuda.memory._snapshot()["device_traces"][0]]
    return {"rows": rows.taken, "events": events, "marks": told, "program": program, "capacity": torch.cuda.mem_get_info()[1], "device": "FakeCUDA sm_%d%d" % torch.cuda.get_device_capability()}


def in_a_child(function, *arguments):
    """A function's result from a process of its own."""
    with tempfile.NamedTemporaryFile("r") as result:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with open(result.name, "w") as file:
                    json.dump(function(*arguments), file, default=str)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        if os.waitpid(child, 0)[1]:
            raise RuntimeError(f"{function.__name__} of {arguments} failed")
        return json.load(result)


def labels(events, told):
    """Who made each allocation and each free, if the profiler saw it: then it is the next one, and of the same size."""
    names, index, made, place = [""], {"": 0}, [], 0
    blocks = {}
    for action, size, address in events:
        if action == "a":
            least = (size + 511) // 512 * 512
            seen = place < len(told) and least <= told[place][0] <= least + (1 << 20)
            blocks[address], name = told[place] if seen else (least, "")
            place += seen
        elif action == "q":
            seen = place < len(told) and told[place][0] == -blocks[address]
            name = told[place][1] if seen else ""
            place += seen
        else:
            continue
        if name not in index:
            index[name] = len(names)
            names.append(name)
        made.append(index[name])
    assert place == len(told), told[place:place + 3]
    return {"op_names": names, "ev_op": made}


def packed(name):
    """A program's recording."""
    plain, profiled = (in_a_child(run, name, profiled) for profiled in (False, True))
    kinds, sizes, places, freed, live, count = "", [], [], [], {}, 0
    first = min(address for _, _, address in plain["events"])
    for action, size, address in plain["events"]:
        if action == "a":
            live[address], count = count, count + 1
        elif action == "q":
            freed.append(live[address])
        if action == "c":
            continue
        kinds += "f" if action == "q" else action
        if action != "q":
            sizes.append(size)
            places.append((address - first) // 512)
    return {"format": "oracle-script-1", "name": name, "torch": torch.__version__, "alloc_conf": "", "env": {"FAKECUDNN_WS": os.environ.get("FAKECUDNN_WS", "0")} if "cudnn" in name else {}, "capacity": plain["capacity"],
            "device": plain["device"], "cudnn_enabled": "cudnn" in name, "step_columns": COLUMNS, "steps": plain["rows"], "ev": kinds, "ev_size": sizes,
            "ev_addr512": places, "ev_free_ref": freed, **labels(plain["events"], profiled["marks"]),
            **({"program": plain["program"]} if plain["program"] else {})}


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(PROGRAMS)
    for name in names:
        recording = packed(name)
        with open(os.path.join(folder, name + ".json.gz"), "wb") as file:
            file.write(gzip.compress(json.dumps(recording, separators=(",", ":")).encode(), mtime=0))
        print(name, len(recording["ev"]), "events, peak", recording["steps"][-1][2], flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
