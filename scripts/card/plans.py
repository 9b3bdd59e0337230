#!/usr/bin/env python3
"""Asks cuDNN for the workspaces of convolutions in three ways beside each other: by a handle, by the card's own properties, and by their JSON.

    python plans.py FILE.json [--seconds S] [--share K/N] [--json PROPERTIES] --tables FOLDER

A handle is how PyTorch asks. A descriptor of the card's properties takes its place in a rehearsal, which makes it from a JSON of public figures. Where the
handle and the card's own descriptor agree and the JSON differs, the JSON lacks something. The convolutions are those of the tables of this card's capability
in FOLDER (`lab/src/run/workspaces/tables`), whose figures stand beside. FILE.json has the card's own JSON, too. Without a card, PROPERTIES is a file with
such a JSON, and cuDNN is asked by that alone. The library is the one that PyTorch brought. Nothing is executed.
"""
import argparse
import ctypes
import json
import pathlib
import time
from typing import Any

import torch

from workspaces import PASSES, cases_of_tables

# Numbers of cudnnBackendDescriptorType_t, ...AttributeName_t, ...AttributeType_t and cudnnDataType_t: cudnn_graph.h, in the wheel and in NVIDIA's documentation.
CONVOLUTION, CONFIGURATION, HEURISTIC, PLAN, GRAPH, TENSOR, PROPERTIES = 1, 3, 4, 5, 15, 17, 38
HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, MODE, HEURISTIC_MODE, DESCRIPTOR, INT32, CHAR = 0, 1, 2, 3, 4, 7, 8, 15, 23, 24
NUMBERS = {"float32": 0, "float16": 2, "bfloat16": 9}
C: dict[int, Any] = {HANDLE: ctypes.c_void_p, DESCRIPTOR: ctypes.c_void_p, INT64: ctypes.c_int64, FLOAT: ctypes.c_float, BOOLEAN: ctypes.c_bool, CHAR: ctypes.c_char}
# For each direction: its kind, and its first attribute, which six follow: two factors, the convolution, and the tensors of weight, input and output.
OPERATIONS = {"forward": (10, 700), "input_gradient": (12, 706), "weight_gradient": (11, 712)}
INSTANT, FALLBACK = 0, 2


class Refused(Exception):
    """cuDNN refused a call with this status."""


class Cudnn:
    """The backend interface of the library that PyTorch brought."""

    def __init__(self):
        # PyTorch loads it from its folder, or from the package beside it.
        folders = [pathlib.Path(torch.__file__).parent / "lib", *pathlib.Path(torch.__file__).parent.parent.glob("nvidia/*/lib")]
        self.library = ctypes.CDLL(str(next(file for folder in folders for file in folder.glob("libcudnn.so.9"))))

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise Refused(f"{name}: {status}")

    def handle(self):
        made = ctypes.c_void_p()
        self.call("cudnnCreate", ctypes.byref(made))
        return made.value

    def create(self, kind):
        made = ctypes.c_void_p()
        self.call("cudnnBackendCreateDescriptor", kind, ctypes.byref(made))
        return made

    def made(self, kind, *attributes):
        """A finished descriptor with these attributes: number, type, values."""
        descriptor = self.create(kind)
        for attribute, type_, values in attributes:
            array = (C.get(type_, ctypes.c_int32) * len(values))(*values)
            self.call("cudnnBackendSetAttribute", descriptor, attribute, type_, ctypes.c_int64(len(values)), array)
        self.call("cudnnBackendFinalize", descriptor)
        return descriptor

    def get(self, descriptor, attribute, type_, array):
        count = ctypes.c_int64()
        self.call("cudnnBackendGetAttribute", descriptor, attribute, type_, ctypes.c_int64(len(array)), ctypes.byref(count), array)
        return min(count.value, len(array))

    def destroy(self, descriptors):
        for descriptor in descriptors:
            self.call("cudnnBackendDestroyDescriptor", descriptor)


def strides(sizes, is_channels_last):
    _, c, h, w = sizes
    return [c * h * w, 1, w * c, c] if is_channels_last else [c * h * w, h * w, w, 1]


def graph(cudnn, case, direction, handle):
    """The graph of one direction of a convolution, as PyTorch makes it. Returns all descriptors, the graph last."""
    x, w, stride, padding, dilation, type_, is_channels_last = case
    out = [(i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d in zip(x[2:], w[2:], stride, padding, dilation)]
    sizes = {"x": x, "w": w, "y": (x[0], w[0], *out)}
    made = [cudnn.made(TENSOR, (901, DATA_TYPE, [NUMBERS[type_]]), (902, INT64, size), (903, INT64, strides(size, is_channels_last)), (906, INT64, [ord(name)]),
                       (900, INT64, [16])) for name, size in sizes.items()]
    tensors = dict(zip(sizes, made))
    made.append(cudnn.made(CONVOLUTION, (100, DATA_TYPE, [0]), (101, MODE, [1]), (106, INT64, [2]), (103, INT64, stride), (105, INT64, padding), (104, INT64, padding),
                           (102, INT64, dilation)))
    kind, first = OPERATIONS[direction]
    parts = [(first + 3 + at, DESCRIPTOR, [tensors[name].value]) for at, name in enumerate("wxy")]
    made.append(cudnn.made(kind, (first, FLOAT, [1.0]), (first + 1, FLOAT, [0.0]), (first + 2, DESCRIPTOR, [made[-1].value]), *parts))
    by = [(800, HANDLE, [handle])] if handle else []
    made.append(cudnn.made(GRAPH, *by, (801, DESCRIPTOR, [made[-1].value])))
    return made


def workspace(cudnn, case, direction, handle, properties):
    """Bytes of the first plan that cuDNN can make, asked by a handle or by properties; `None` if there is no plan."""
    made = graph(cudnn, case, direction, handle)
    try:
        for mode in (INSTANT, FALLBACK):
            by = [] if handle else [(204, DESCRIPTOR, [properties.value])]
            made.append(cudnn.made(HEURISTIC, (201, DESCRIPTOR, [made[5].value]), (200, HEURISTIC_MODE, [mode]), *by))
            configurations = [cudnn.create(CONFIGURATION) for _ in range(32)]
            made += configurations
            array = (ctypes.c_void_p * len(configurations))(*(one.value for one in configurations))
            for at in range(cudnn.get(made[-1 - len(configurations)], 202, DESCRIPTOR, array)):
                by = (400, HANDLE, [handle]) if handle else (407, DESCRIPTOR, [properties.value])
                try:
                    made.append(cudnn.made(PLAN, by, (401, DESCRIPTOR, [array[at]])))
                except Refused:
                    continue
                bytes_ = (ctypes.c_int64 * 1)()
                cudnn.get(made[-1], 402, INT64, bytes_)
                return bytes_[0]
        return None
    finally:
        cudnn.destroy(reversed(made))


def ways(cudnn, given):
    """The ways to ask here: name, handle, properties. And the card's JSON."""
    if given.json:
        text = pathlib.Path(given.json).read_text().strip()
        return {"json": (None, cudnn.made(PROPERTIES, (2702, CHAR, text.encode())))}, text
    own = cudnn.made(PROPERTIES, (2700, INT32, [torch.cuda.current_device()]))
    array = (ctypes.c_char * (1 << 16))()
    text = array.raw[: cudnn.get(own, 2702, CHAR, array)].rstrip(b"\0")
    return {"handle": (cudnn.handle(), None), "properties": (None, own), "json": (None, cudnn.made(PROPERTIES, (2702, CHAR, text)))}, text.decode()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--tables", required=True)
    parser.add_argument("--json")
    parser.add_argument("--share", default="1/1")
    parser.add_argument("--seconds", type=float, default=1e9)
    given = parser.parse_args()
    cudnn = Cudnn()
    asked, text = ways(cudnn, given)
    cases, rows, begin = cases_of_tables(given, json.loads(text)["deviceVer"] // 10), [], time.monotonic()
    for kind, row in cases:
        if time.monotonic() - begin > given.seconds:
            break
        case = (row[2:6], row[6:10], row[10:12], row[12:14], row[14:16], kind, bool(row[1]))
        for at, direction in enumerate(PASSES):
            said = [workspace(cudnn, case, direction, *by) for by in asked.values()]
            rows.append([*case, direction, *said, row[17 + at], bool(row[20] >> at & 1)])
    columns = ["input", "weight", "stride", "padding", "dilation", "type", "channels_last", "direction", *asked, "named", "ranged"]
    about = {"cudnn": torch.backends.cudnn.version(), "what": "workspaces of cuDNN's convolutions in bytes, by how it was asked: scripts/card/plans.py"}
    with open(given.file, "w") as file:
        json.dump({**about, "json": json.loads(text), "left_out": 3 * len(cases) - len(rows), "columns": columns, "rows": rows}, file, separators=(",", ":"))
    for name in asked:
        equal = sum(row[columns.index(name)] == row[-2] for row in rows)
        print(f"{name}: {equal} of {len(rows)} as the table names", end="; ")
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
