#!/usr/bin/env python3
"""Asks cuDNN on the card of this machine how large its workspaces are for the convolutions of networks, as PyTorch calls them.

    python workspaces.py FILE.json [--seconds S] [--modes default,deterministic,benchmark] [--types float32,bfloat16,float16] NETWORK BATCH [NETWORK BATCH ...]
    python workspaces.py FILE.json [--seconds S] [--share K/N] --tables FOLDER

Every convolution of a training step of torchvision's NETWORK is called alone, forward, and backward for its input and its weight. What the
allocator gave besides the results is the workspace. FILE.json has a row for each kind of convolution, type, memory format and mode; with
`benchmark` the figures are those of a later call, when cuDNN's choice is made. The order is drawn with a fixed seed, so that what S seconds
leave out is drawn too. With `--tables` the convolutions are those of the tables of this card's capability in FOLDER (`lab/src/run/workspaces/tables`),
and the rows have what the table names beside what was measured; `--share 2/5` is the second of five equal parts.
"""
import argparse
import json
import pathlib
import random
import struct
import time
import zlib

import torch
import torchvision

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
COLUMNS = ["network", "count", "input", "weight", "stride", "padding", "dilation", "groups", "type", "format", "mode", "forward", "input_gradient", "weight_gradient"]
PASSES = ("forward", "input_gradient", "weight_gradient")
# A row of a table: a case in 17 numbers, three workspaces, and a bit for each that a card may change.
ROW = struct.Struct(">17I3QB")
TABLE_COLUMNS = ["input", "weight", "stride", "padding", "dilation", "groups", "type", "format", *PASSES, "named_forward", "named_input_gradient", "named_weight_gradient", "ranged"]


def convolutions(network, batch):
    """The sizes of each convolution's input, weight and settings, with how often they occur."""
    # Some networks compute with values while they are made.
    model = torchvision.models.get_model(network, weights=None).to("meta")
    found = {}

    def note(module, inputs):
        key = (tuple(inputs[0].shape), tuple(module.weight.shape), tuple(module.stride), tuple(module.padding), tuple(module.dilation), module.groups)
        found[key] = found.get(key, 0) + 1
    for module in model.modules():
        if isinstance(module, (torch.nn.Conv2d, torch.nn.Conv3d)):
            module.register_forward_pre_hook(note)
    is_video = any(isinstance(module, torch.nn.Conv3d) for module in model.modules())
    side = 299 if network == "inception_v3" else 224
    model(torch.empty(batch, 3, *((16, 112, 112) if is_video else (side, side)), device="meta"))
    return found


def allocated(call):
    """Bytes that a call asks for at its peak, without its results."""
    torch.cuda.reset_peak_memory_stats()
    results = call()
    said = torch.cuda.memory_stats()
    del results
    return said["requested_bytes.all.peak"] - said["requested_bytes.all.current"]


def layouts(dimensions):
    return {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last if dimensions == 4 else torch.channels_last_3d}


def measured(key, dtype, layout, mode):
    x_size, w_size, stride, padding, dilation, groups = key
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = mode == "benchmark", mode == "deterministic"
    x = torch.randn(x_size, device="cuda", dtype=dtype).to(memory_format=layout)
    weight = torch.randn(w_size, device="cuda", dtype=dtype).to(memory_format=layout)
    none = [0] * len(stride)
    forward = lambda: (torch.ops.aten.convolution(x, weight, None, stride, padding, dilation, False, none, groups),)
    out, = forward()
    grad = torch.randn_like(out)

    def backward(*mask):
        return lambda: torch.ops.aten.convolution_backward(grad, x, weight, None, stride, padding, dilation, False, none, groups, mask)
    calls = dict(zip(PASSES, (forward, backward(True, False, False), backward(False, True, False))))
    if mode == "benchmark":
        for call in calls.values():
            call()
    return {name: allocated(call) for name, call in calls.items()}


def rows_of(file):
    """The rows of a table's file: the number of its blocks, the first case and the end of each, and the blocks, each compressed for itself."""
    (count,) = struct.unpack_from(">I", file)
    entry = struct.Struct(">68sI")
    ends = [end for _, end in entry.iter_unpack(file[4 : 4 + count * entry.size])]
    blocks = file[4 + count * entry.size :]
    return b"".join(zlib.decompress(blocks[begin:end], -15) for begin, end in zip([0, *ends], ends))


def cases_of_tables(given, capability):
    """This share of the cases in the tables of a capability, each with its type, in an order that is the same for all shares."""
    place, parts = map(int, given.share.split("/"))
    cases = [(kind, row) for kind in TYPES
             for row in ROW.iter_unpack(rows_of((pathlib.Path(given.tables) / f"sm{capability}-{kind}.rows").read_bytes()))]
    random.Random(1).shuffle(cases)
    return cases[place - 1::parts]


def of_tables(given):
    """Measures what the tables of this card's capability name."""
    major, minor = torch.cuda.get_device_capability()
    cases = cases_of_tables(given, f"{major}{minor}")
    rows, failed, begin = [], [], time.monotonic()
    for kind, row in cases:
        if time.monotonic() - begin > given.seconds:
            break
        layout = "channels_last" if row[1] else "contiguous"
        key = (row[2:6], row[6:10], row[10:12], row[12:14], row[14:16], row[16])
        try:
            found = measured(key, TYPES[kind], layouts(4)[layout], "default")
        except RuntimeError as error:
            failed.append([*key, kind, layout, str(error)[:200]])
            torch.cuda.empty_cache()
            continue
        rows.append([*key, kind, layout, *found.values(), *row[17:]])
        # Other processes need the card, too.
        if torch.cuda.memory_reserved() > 8 << 30:
            torch.cuda.empty_cache()
    write(given.file, len(cases), rows, failed, TABLE_COLUMNS, begin)


def write(path, count, rows, failed, columns, begin):
    said = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
            "what": "workspaces of cuDNN's convolutions in bytes, as PyTorch calls them: scripts/card/workspaces.py", "left_out": count - len(rows) - len(failed),
            "failed": failed, "columns": columns, "rows": rows}
    with open(path, "w") as file:
        json.dump(said, file, separators=(",", ":"))
    print(len(rows), "rows of", count, f"{time.monotonic() - begin:.0f} s,", len(failed), "failed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--tables")
    parser.add_argument("--share", default="1/1")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--modes", default="default")
    parser.add_argument("--types", default="float32,bfloat16")
    parser.add_argument("words", nargs="*")
    given = parser.parse_args()
    if given.tables:
        of_tables(given)
        return
    wanted = {}
    for network, batch in zip(given.words[::2], map(int, given.words[1::2])):
        for key, count in convolutions(network, batch).items():
            wanted.setdefault(key, (network, count))
    cases = [(key, name, mode, kind, layout) for key, (name, _) in wanted.items() for mode in given.modes.split(",") for kind in given.types.split(",")
             for layout in ("contiguous", "channels_last")]
    random.Random(1).shuffle(cases)
    rows, failed, begin = [], [], time.monotonic()
    for key, name, mode, kind, layout in cases:
        if time.monotonic() - begin > given.seconds:
            break
        try:
            found = measured(key, TYPES[kind], layouts(len(key[0]))[layout], mode)
        except RuntimeError as error:
            failed.append([*key, kind, layout, mode, str(error)[:200]])
            continue
        rows.append([name, wanted[key][1], *key, kind, layout, mode, *found.values()])
    write(given.file, len(cases), rows, failed, COLUMNS, begin)


if __name__ == "__main__":
    main()
