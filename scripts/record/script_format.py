"""The format `oracle-script-1`: what an allocator did while a program ran, the figures between the program's phases, and who made and freed each block.

`recorded` runs a program once, in a process of its own. `packed` makes the recording of two such runs: one as it is, and one under the profiler,
which knows the operators and changes neither sizes nor order."""
import json
import os
import sys
import tempfile
import traceback

COLUMNS = ["label", "allocated", "max_allocated", "reserved", "max_reserved", "phase_peak_allocated", "requested", "active",
           "inactive_split", "segments", "n_alloc_plus_free"]
ACTIONS = {"alloc": "a", "free_requested": "q", "free_completed": "c", "segment_alloc": "S", "segment_free": "F", "segment_map": "M",
           "segment_unmap": "U", "oom": "o"}


class Rows:
    """Takes a row per call. `max_*` columns are never reset."""

    def __init__(self):
        self.taken, self.notes, self.highest, self.most_reserved = [], [], 0, 0

    def __call__(self, label):
        import torch

        stats = torch._C._cuda_memoryStats(0)
        peak, reserved = stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]
        self.highest, self.most_reserved = max(self.highest, peak), max(self.most_reserved, reserved)
        changes = stats["allocation"]["all"]["allocated"] + stats["allocation"]["all"]["freed"]
        self.taken.append([label, torch.cuda.memory_allocated(), self.highest, torch.cuda.memory_reserved(), self.most_reserved, peak,
                           stats["requested_bytes"]["all"]["current"], stats["active_bytes"]["all"]["current"],
                           stats["inactive_split_bytes"]["all"]["current"], stats["segment"]["all"]["current"], changes])
        torch.cuda.reset_peak_memory_stats()


def label(path, shortens=False):
    """Who made or freed a block: `outer>...>inner` operators, `XBackward0.` the engine around a node, "" the program. `shortens`: names of
    nodes in C++ are without their namespace, as in the recordings of loops."""
    names = []
    for index, name in enumerate(path):
        if name.startswith("autograd::engine::evaluate_function: "):
            name = name.split(": ", 1)[1]
            if path[index + 1:index + 2] == (name,):
                continue
            name += "."
        elif name.startswith("aten::empty"):
            continue
        name = name.replace("torch::autograd::", "") if shortens else name
        for prefix, short in (("aten::", ""), ("Optimizer.step#", ""), ("Optimizer.zero_grad#", "zero_grad:")):
            name = name.replace(prefix, short)
        if not names or names[-1] != name:
            names.append(name)
    return ">".join(names[:2] + names[-1:] if len(names) > 3 else names)


def marks(profile, shortens):
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
    return [(size, label(path, shortens)) for _, size, path in sorted(found, key=lambda mark: mark[0])]


def recorded(program, profiled, shortens=False):
    """Runs a program, a function of the rows, in this process. Returns its rows, its events, and who made them. Snapshots are no events: the
    rehearsal takes one when memory runs out."""
    import torch

    rows = Rows()
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=1 << 20)
    torch.manual_seed(0)
    told, made = [], None
    if profiled:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            made = program(rows)
            rows("end")
        told = marks(profile, shortens)
    else:
        made = program(rows)
        rows("end")
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    events = [[ACTIONS[event["action"]], event["size"], event.get("addr", 0)] for event in trace if event["action"] in ACTIONS]
    return {"rows": rows.taken, "notes": rows.notes, "events": events, "marks": told, "program": made,
            "oom_device_free": [event["device_free"] for event in trace if event["action"] == "oom"],
            "capacity": torch.cuda.mem_get_info()[1], "device": "FakeCUDA sm_%d%d" % torch.cuda.get_device_capability(),
            "cudnn": torch.backends.cudnn.enabled, "torch": torch.__version__}


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


def labels(events, told, rounds):
    """Who made each allocation and each free, if the profiler saw it: then it is the next one, and of the same size. Where sizes are rounded
    to more than 512 bytes, `rounds` is true. None if something was seen that is no event."""
    names, index, made, place = [""], {"": 0}, [], 0
    blocks: dict = {}
    for action, size, address in events:
        if action == "a":
            least = (size + 511) // 512 * 512
            seen = place < len(told) and least <= told[place][0] and (rounds or told[place][0] <= least + (1 << 20))
            blocks[address], name = told[place] if seen else (least, "")
            place += seen
        elif action == "q":
            seen = place < len(told) and told[place][0] == -blocks.get(address, 0)
            name = told[place][1] if seen else ""
            place += seen
        else:
            continue
        if name not in index:
            index[name] = len(names)
            names.append(name)
        made.append(index[name])
    return (names, made) if place == len(told) else None


def events_of(events):
    """The columns of events: a free that is completed at once is one event `f`. Addresses are relative, in units of 512 bytes."""
    kinds, sizes, places, freed, live = "", [], [], [], {}
    count, at = 0, 0
    first = min((address for action, _, address in events if action in "SM"), default=0)
    while at < len(events):
        action, size, address = events[at]
        if action == "q" and events[at + 1:at + 2] and events[at + 1][0] == "c" and events[at + 1][2] == address:
            action, at = "f", at + 1
        kinds += action
        if action == "a":
            live[address], count = count, count + 1
        elif action in "fq":
            freed.append(live.get(address, -1))
        if action not in "fc":
            sizes.append(size)
        if action not in "fcq":
            places.append((address - first) // 512 if address >= first else -1)
        at += 1
    return {"ev": kinds, "ev_size": sizes, "ev_addr512": places, "ev_free_ref": freed}


def packed(name, plain, profiled, environment):
    """A program's recording, of its run as it is and of the one under the profiler."""
    conf = environment.get("PYTORCH_ALLOC_CONF", "")
    found = labels(plain["events"], profiled["marks"], "power2" in conf) if profiled else None
    names, made = found or ([""], [])
    program = {"program": plain["program"]} if plain["program"] else {}
    return {"format": "oracle-script-1", "name": name, "torch": plain["torch"], "alloc_conf": conf, "env": environment,
            "capacity": plain["capacity"], "device": plain["device"], "cudnn_enabled": plain["cudnn"], "step_columns": COLUMNS,
            "steps": plain["rows"], "notes": plain["notes"], "oom_device_free": plain["oom_device_free"], **events_of(plain["events"]),
            "op_names": names, "ev_op": made, "labelled": found is not None, **program}
