#!/usr/bin/env python3
"""Asks cuDNN on the card of this machine how large its workspaces are for the convolutions of networks, as PyTorch calls them.

    python workspaces.py FILE.json [--seconds S] [--modes default,deterministic,benchmark] [--types float32,bfloat16,float16] NETWORK BATCH [NETWORK BATCH ...]

Every convolution of a training step of torchvision's NETWORK is called alone, forward, and backward for its input and its weight. What the
allocator gave besides the results is the workspace. FILE.json has a row for each kind of convolution, type, memory format and mode; with
`benchmark` the figures are those of a later call, when cuDNN's choice is made. The order is drawn with a fixed seed, so that what S seconds
leave out is drawn too.
"""
import argparse
import json
import random
import time

import torch
import torchvision

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
COLUMNS = ["network", "count", "input", "weight", "stride", "padding", "dilation", "groups", "type", "format", "mode", "forward", "input_gradient", "weight_gradient"]
PASSES = ("forward", "input_gradient", "weight_gradient")


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
    """Sizes of what a call allocates, without its results."""
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history(max_entries=1000)
    results = [result for result in call() if result is not None]
    torch.cuda.synchronize()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    places = {result.data_ptr() for result in results}
    return [event["size"] for event in events if event["action"] == "alloc" and event["addr"] not in places]


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
    return {name: sum(allocated(call)) for name, call in calls.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--modes", default="default")
    parser.add_argument("--types", default="float32,bfloat16")
    parser.add_argument("words", nargs="+")
    given = parser.parse_args()
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
    said = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
            "what": "workspaces of cuDNN's convolutions in bytes, as PyTorch calls them: scripts/card/workspaces.py", "left_out": len(cases) - len(rows) - len(failed),
            "failed": failed, "columns": COLUMNS, "rows": rows}
    with open(given.file, "w") as file:
        json.dump(said, file, separators=(",", ":"))
    print(len(rows), "rows of", len(cases), f"{time.monotonic() - begin:.0f} s,", len(failed), "failed, largest", max((max(row[-3:]) for row in rows), default=0))


if __name__ == "__main__":
    main()
