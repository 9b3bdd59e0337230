#!/usr/bin/env python3
"""Asks cuDNN on the card of this machine how large its workspaces are for the convolutions of a network, as PyTorch calls it by default.

    python workspaces.py FILE.json NETWORK BATCH [NETWORK BATCH ...]

Every convolution of a training step of torchvision's NETWORK is called alone, forward, and backward for its input and its weight. What the
allocator gave besides the results is the workspace. FILE.json has a row for each kind of convolution, type and memory format.
"""
import json
import sys

import torch
import torchvision

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def convolutions(network, batch):
    """The sizes of each convolution's input, weight and settings, without repetition."""
    with torch.device("meta"):
        model = torchvision.models.get_model(network, weights=None)
    found = {}

    def note(module, inputs):
        key = (tuple(inputs[0].shape), tuple(module.weight.shape), tuple(module.stride), tuple(module.padding), tuple(module.dilation), module.groups)
        found[key] = found.get(key, 0) + 1
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_pre_hook(note)
    model(torch.empty(batch, 3, 224, 224, device="meta"))
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


def measured(key, dtype, layout):
    x_size, w_size, stride, padding, dilation, groups = key
    x = torch.randn(x_size, device="cuda", dtype=dtype).to(memory_format=layout)
    weight = torch.randn(w_size, device="cuda", dtype=dtype).to(memory_format=layout)
    forward = lambda: (torch.ops.aten.convolution(x, weight, None, stride, padding, dilation, False, [0, 0], groups),)
    out, = forward()
    grad = torch.randn_like(out)

    def backward(mask):
        return lambda: torch.ops.aten.convolution_backward(grad, x, weight, None, stride, padding, dilation, False, [0, 0], groups, mask)
    return {"forward": allocated(forward), "input_gradient": allocated(backward([True, False, False])),
            "weight_gradient": allocated(backward([False, True, False]))}


def main():
    path, words = sys.argv[1], sys.argv[2:]
    rows = []
    for network, batch in zip(words[::2], map(int, words[1::2])):
        for key, count in convolutions(network, batch).items():
            for (type_name, dtype), (format_name, layout) in ((t, f) for t in TYPES.items() for f in FORMATS.items()):
                x_size, w_size, stride, padding, dilation, groups = key
                rows.append({"network": network, "count": count, "input": x_size, "weight": w_size, "stride": stride, "padding": padding,
                             "dilation": dilation, "groups": groups, "type": type_name, "format": format_name, **measured(key, dtype, layout)})
    said = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "device": torch.cuda.get_device_name(), "rows": rows}
    with open(path, "w") as file:
        json.dump(said, file, separators=(",", ":"))
    print(len(rows), "rows", max((max(row[way], default=0) for row in rows for way in ("forward", "input_gradient", "weight_gradient")), default=0))


if __name__ == "__main__":
    main()
