"""Asks the cuDNN of this Python's PyTorch for the workspaces of convolutions, under the library that stands for a card.

Reads `{"cases": [[number, …], …]}` from its input, each as `WorkspaceTable` in `lab/src/run/workspaces/table.rs` has it. Writes a line of JSON: either
`{"cudnn": version, "rows": [[forward, input gradient, weight gradient, mask], …]}`, where the mask has a bit for each that a card may change, or
`{"refused": reason}`."""

import sys

# Modules of the folder that this was started in are none of PyTorch's.
sys.path[:] = [folder for folder in sys.path if folder]

import ctypes  # noqa: E402
import json  # noqa: E402

# The first cuDNN that plans for a card that is not there.
LEAST_CUDNN = 90800
# Sources of a plan (`vramlab_rehearsal_plan`): cuDNN itself, and those from which a card may take more.
ASKED, RANGED = 1, (2, 3)
PASSES = 3


class Refused(Exception):
    """Why nothing can be asked here."""


def usable():
    """Returns PyTorch, if its cuDNN can be asked."""
    try:
        import torch
    except ImportError as error:
        raise Refused(f"PyTorch cannot be imported: {error}") from error
    if torch.version.cuda is None:
        raise Refused(f"PyTorch {torch.__version__} is not made for CUDA")
    version = torch.backends.cudnn.version() or 0
    if version < LEAST_CUDNN:
        raise Refused(f"cuDNN {version} of PyTorch {torch.__version__} plans only on a card; {LEAST_CUDNN} and later plan without one")
    return torch, version


def last_plan(library):
    """Source and bytes of the last plan, or nothing if cuDNN was not asked since the last call."""
    plan = (ctypes.c_int64 * PASSES)()
    return (plan[0], plan[2]) if library.vramlab_rehearsal_plan(plan) == 0 else None


def row(torch, library, case):
    """The workspaces of a case, and which of them a card may change; None if cuDNN refuses one. PyTorch asks for a plan once and keeps it."""
    dtype = (torch.float32, torch.float16, torch.bfloat16)[case[0]]
    layout = torch.channels_last if case[1] else torch.contiguous_format
    x_size, w_size, stride, padding, dilation, groups = case[2:6], case[6:10], case[10:12], case[12:14], case[14:16], case[16]
    x, weight = (torch.empty(size, device="cuda", dtype=dtype, memory_format=layout) for size in (x_size, w_size))
    shape = (stride, padding, dilation, False, [0, 0], groups)
    last_plan(library)
    grad = torch.empty_like(torch.ops.aten.convolution(x, weight, None, *shape))
    plans = [last_plan(library)]
    for mask in ((True, False, False), (False, True, False)):
        torch.ops.aten.convolution_backward(grad, x, weight, None, *shape, mask)
        plans.append(last_plan(library))
    if any(plan is not None and plan[0] not in (ASKED, *RANGED) for plan in plans):
        return None
    ranged = sum(1 << index for index, plan in enumerate(plans) if plan is not None and plan[0] in RANGED)
    return [*(0 if plan is None else plan[1] for plan in plans), ranged]


def main():
    cases = json.load(sys.stdin)["cases"]
    try:
        torch, version = usable()
        library = ctypes.CDLL(None)
        told = {"cudnn": version, "rows": [row(torch, library, case) for case in cases]}
    except Refused as refused:
        told = {"refused": str(refused)}
    print(json.dumps(told))


main()
