"""The format `oracle-trace-1`: what PyTorch's allocator does for a list of operations, which is the input. The list is that of a file of this
format, and everything else is recorded anew. Covered: one stream, without expandable segments, and no request that the driver refuses."""

OPERATIONS = ("op", "id", "size", "stream")
# Column, the figure in `memory_stats()`, and its unit.
COLUMNS = {"d_alloc512": ("allocated_bytes.all.current", 512), "d_active512": ("active_bytes.all.current", 512),
           "d_isplit512": ("inactive_split_bytes.all.current", 512), "d_resv2m": ("reserved_bytes.all.current", 2 << 20),
           "d_req": ("requested_bytes.all.current", 1), "d_retries": ("num_alloc_retries", 1), "d_ooms": ("num_ooms", 1),
           "d_nseg": ("segment.all.current", 1), "d_peak512": ("allocated_bytes.all.peak", 512),
           "d_rpeak2m": ("reserved_bytes.all.peak", 2 << 20)}
STATES = {"inactive": 0, "active_allocated": 1, "active_pending_free": 2}


def problem(trace):
    """Why a list of operations cannot be recorded here; None if it can."""
    if trace["streams"] != 1:
        return "several streams"
    if "expandable" in trace["alloc_conf"]:
        return "expandable segments: the calls that reserve addresses are not seen"
    if "X" in trace["driver"]["kind"]:
        return "the driver refuses memory, which PyTorch's history does not tell"
    return None


def run(trace):
    """Does the operations, and returns the figures after each."""
    import torch

    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python", max_entries=1 << 20)
    if trace["memory_fraction"] is not None:
        torch.cuda.set_per_process_memory_fraction(trace["memory_fraction"])
    figures, live, sizes = [], {}, iter(trace["size"])
    for kind, number in zip(trace["op"], trace["id"]):
        if kind == "a":
            try:
                live[number] = torch.cuda.caching_allocator_alloc(next(sizes), 0, 0)
            except torch.OutOfMemoryError:
                live[number] = None
        elif kind == "f":
            address = live.pop(number)
            if address is not None:
                torch.cuda.caching_allocator_delete(address)
        elif kind == "e":
            torch.cuda.empty_cache()
        elif kind == "p":
            torch.cuda.reset_peak_memory_stats()
        else:
            raise ValueError(f"operation {kind!r}")
        stats = torch.cuda.memory_stats()
        calls = stats.get("segment.all.allocated", 0) + stats.get("segment.all.freed", 0)
        figures.append([*(stats.get(name, 0) // unit for name, unit in COLUMNS.values()), calls])
    return figures


def changes(figures):
    """Each column as changes; one that is always 0 is empty."""
    found = {}
    for at, name in enumerate(COLUMNS):
        values = [0, *(row[at] for row in figures)]
        made = [after - before for before, after in zip(values, values[1:])]
        found[name] = made if any(made) else []
    return found


def placed(trace, figures, events):
    """Where each allocation landed, and what was asked of the driver during which operation."""
    calls = iter([event for event in events if event["action"] in ("segment_alloc", "segment_free")])
    made = iter([event["addr"] for event in events if event["action"] == "alloc"])
    base = min((event["addr"] for event in events if event["action"] == "segment_alloc"), default=0)
    asked: dict = {"op": [], "kind": "", "addr2m": [], "size2m": []}
    segments: dict = {}
    count, before, before_ooms, seg, off = 0, 0, 0, [], []
    ooms = list(COLUMNS).index("d_ooms")
    for at, (kind, row) in enumerate(zip(trace["op"], figures)):
        for _ in range(row[-1] - before):
            call = next(calls)
            is_new = call["action"] == "segment_alloc"
            if is_new:
                segments[call["addr"]], count = count, count + 1
            else:
                segments.pop(call["addr"])
            asked["op"].append(at)
            asked["kind"] += "M" if is_new else "F"
            asked["addr2m"].append((call["addr"] - base) >> 21)
            asked["size2m"].append(call["size"] >> 21)
        if kind == "a" and row[ooms] > before_ooms:
            seg.append(-1)
            off.append(-1)
        elif kind == "a":
            address = next(made)
            start = max(start for start in segments if start <= address)
            seg.append(segments[start])
            off.append((address - start) // 512)
        before, before_ooms = row[-1], row[ooms]
    return {"seg": seg, "off512": off}, asked, base


def recording(trace):
    """The trace with everything but its operations recorded anew."""
    import torch

    figures = run(trace)
    snapshot = torch.cuda.memory._snapshot()
    where, asked, base = placed(trace, figures, snapshot["device_traces"][0])
    final = [
        [segment["address"] - base, segment["total_size"], 0, int(segment["segment_type"] == "large"), int(segment["is_expandable"]),
         [[block["size"], block["requested_size"], STATES[block["state"]]] for block in segment["blocks"]]]
        for segment in snapshot["segments"]
    ]
    stats = {name: value for name, value in torch.cuda.memory_stats().items() if value}
    new = {"torch": torch.__version__, "capacity": torch.cuda.mem_get_info()[1], "device": "FakeCUDA sm_%d%d" % torch.cuda.get_device_capability(),
           **where, **changes(figures), "driver": asked, "final_segments": final, "final_stats": stats}
    return {key: new.get(key, value) for key, value in trace.items()}
