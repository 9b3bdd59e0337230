#!/usr/bin/env python3
"""PyTorch's kernels at the sizes of `bench-kernels`, and how much of PyTorch's speed vramlab has.

    torch-kernels.py CRITERION OUT.json [DEVICE [BENCH [ROUNDS]]]

CRITERION is the folder that a run of the benchmark left (CRITERION_HOME), of whose kernels those that PyTorch has as one call are
measured here: calls are queued until 50 ms have passed, then waited for; the median of ten such rounds. With BENCH, the benchmark's
program, both take turns ROUNDS times (3), and the median of the rounds counts. OUT.json is a file for benches/results with a row per
kernel, type and size: nanoseconds of both, and the bytes and operations that the call needs. PyTorch's defaults
hold, for vramlab too: products in float32 are exact, convolutions may take TF32. On a processor PyTorch gets its best: memory stays
mapped between calls, and of a convolution's two layouts the faster one counts.
"""

import ctypes
import glob
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

aten = torch.ops.aten
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}


def number(text):
    for unit, factor in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if text.endswith(unit):
            return int(text[:-2]) * factor
    return int(text)


def attention(new, d):
    q, k, v = (new(d) for _ in range(3))
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attention_grad(new, d):
    inputs = [new(d).requires_grad_() for _ in range(3)]
    with torch.enable_grad():
        out = F.scaled_dot_product_attention(*inputs, is_causal=True)
    grad = new(d)
    return lambda: torch.autograd.grad(out, inputs, grad, retain_graph=True)


def convolution(new, d, which):
    of_processor = new([1]).device.type == "cpu"
    layouts = [torch.contiguous_format, torch.channels_last][: 2 if of_processor else 1]
    return [in_layout(lambda s, layout=layout: new(s).to(memory_format=layout), new, d, which) for layout in layouts]


def in_layout(image, new, d, which):
    batch, channels_in, channels_out, side = d
    x, weight = image([batch, channels_in, side, side]), image([channels_out, channels_in, 3, 3])
    if which is None:
        bias = new([channels_out])
        return lambda: F.conv2d(x, weight, bias, padding=1)
    grad = image([batch, channels_out, side, side])
    rest = ([channels_out], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, which)
    return lambda: aten.convolution_backward(grad, x, weight, *rest)


def layer_norm(new, d):
    x, weight, bias = new(d), new(d[1:]), new(d[1:])
    return lambda: aten.native_layer_norm(x, d[1:], weight, bias, 1e-5)


def layer_norm_grad(new, d):
    x, weight, bias, grad = new(d), new(d[1:]), new(d[1:]), new(d)
    _, mean, rstd = aten.native_layer_norm(x, d[1:], weight, bias, 1e-5)
    return lambda: aten.native_layer_norm_backward(grad, x, d[1:], mean, rstd, weight, bias, [True, True, True])


def batch_norm(new, d):
    x, weight, bias, mean, var = new(d), *(new(d[1:2]) for _ in range(4))
    return lambda: torch.batch_norm(x, weight, bias, mean, var, True, 0.1, 1e-5, torch.backends.cudnn.enabled)


def adam_step(new, d):
    state = [[new(d)] for _ in range(3)] + [[new(d).abs()]]
    steps = [torch.tensor(10.0, device=state[0][0].device)]
    rest = {"lr": 1e-6, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8, "amsgrad": False, "maximize": False}
    return lambda: torch._fused_adamw_(*state, [], steps, **rest)


def sgd_step(new, d):
    state = [[new(d)] for _ in range(3)]
    rest = {"weight_decay": 0.0, "momentum": 0.9, "lr": 1e-6, "dampening": 0.0, "nesterov": False, "maximize": False, "is_first_step": False}
    return lambda: torch._fused_sgd_(*state, **rest)


def into(new, call, *shapes, out):
    inputs, out = [new(shape) for shape in shapes], new(out)
    return lambda: call(*inputs, out=out)


def over(new, call, *shapes):
    inputs = [new(shape) for shape in shapes]
    return lambda: call(*inputs)


# What the call is in PyTorch, of the size's numbers.
KERNELS = {
    "copy": lambda new, d: over(new, lambda out, x: out.copy_(x), d, d),
    "unary_relu": lambda new, d: over(new, torch.relu, d),
    "unary_gelu": lambda new, d: over(new, F.gelu, d),
    "unary_grad_gelu": lambda new, d: over(new, aten.gelu_backward, d, d),
    "binary_add": lambda new, d: into(new, torch.add, d, d, out=d),
    "matmul": lambda new, d: into(new, torch.mm, d * 2, d * 2, out=d * 2),
    "conv2d": lambda new, d: convolution(new, d, None),
    "conv2d_input_grad": lambda new, d: convolution(new, d, [True, False, False]),
    "conv2d_weight_grad": lambda new, d: convolution(new, d, [False, True, False]),
    "attention": attention,
    "attention_grad": attention_grad,
    "reduce_rows": lambda new, d: over(new, lambda x: torch.sum(x, 1, keepdim=True), d),
    "reduce_columns": lambda new, d: over(new, lambda x: torch.sum(x, 0, keepdim=True), d),
    "softmax": lambda new, d: over(new, lambda x: torch.softmax(x, 1), d),
    "softmax_grad": lambda new, d: over(new, lambda g, y: aten._softmax_backward_data(g, y, 1, y.dtype), d, d),
    "layer_norm": layer_norm,
    "layer_norm_grad": layer_norm_grad,
    "batch_norm": batch_norm,
    "sgd_step": sgd_step,
    "adam_step": adam_step,
}


def measured(call, wait):
    """Microseconds of one call, the median of ten rounds."""
    for _ in range(3):
        call()
    wait()
    count, taken = 1, 0.0
    while taken < 0.05:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        taken = time.perf_counter() - begin
        if taken < 0.05:
            count = max(count + 1, int(count * min(10.0, 0.06 / max(taken, 1e-6))))
    rounds = []
    for _ in range(10):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        rounds.append((time.perf_counter() - begin) / count * 1e6)
    return sorted(rounds)[len(rounds) // 2]


def benchmarks(folder):
    """What the benchmark measured: kernel, type, size as text, microseconds, bytes and operations."""
    for path in sorted(glob.glob(f"{folder}/**/new/benchmark.json", recursive=True)):
        what = json.loads(pathlib.Path(path).read_text())
        parts = what["function_id"].split("/")
        if not what["group_id"].startswith("kernels/") or len(parts) != 3:
            continue
        nanoseconds = json.loads(pathlib.Path(path).with_name("estimates.json").read_text())["median"]["point_estimate"]
        yield parts[1], parts[2], what["value_str"], nanoseconds / 1e3, what["throughput"]


def ours(folder, bench, device):
    """The benchmark's figures, measured now if its program is given."""
    if bench:
        wanted = f"/({'|'.join(KERNELS)})/"
        env = {**os.environ, "CRITERION_HOME": os.path.abspath(folder)}
        subprocess.run([bench, "--bench", wanted, "--backend", device.split(":")[0]], env=env, check=True)
    return [row for row in benchmarks(folder) if row[0] in KERNELS and row[1] in DTYPES]


def theirs(kernel, dtype, size, device, wait):
    """Microseconds of PyTorch's fastest call."""
    shape = [number(part) for part in size.split("x")]
    calls = KERNELS[kernel](lambda s: torch.rand(s, device=device).to(DTYPES[dtype]), shape)
    return min(measured(call, wait) for call in (calls if isinstance(calls, list) else [calls]))


def amounts(throughput):
    """Bytes and operations, as criterion writes them."""
    both = throughput.get("ElementsAndBytes", {})
    found = {"bytes": both.get("bytes", throughput.get("BytesDecimal")), "elements": both.get("elements")}
    return {name: value for name, value in found.items() if value is not None}


def keep_heap():
    """Tells glibc to keep freed memory mapped, as MALLOC_MMAP_MAX_=0 and MALLOC_TRIM_THRESHOLD_ do."""
    trim_threshold, mmap_max = -1, -4
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, (1 << 31) - 1)


def main():
    if len(sys.argv) not in (3, 4, 5, 6):
        sys.exit(__doc__)
    device = sys.argv[3] if len(sys.argv) > 3 else "cuda"
    bench = sys.argv[4] if len(sys.argv) > 4 else None
    rounds = int(sys.argv[5]) if len(sys.argv) > 5 else 3 if bench else 1
    if device == "cpu":
        keep_heap()
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    name = torch.cuda.get_device_name() if device.startswith("cuda") else device
    print(f"PyTorch {torch.__version__} on {name}")
    torch.set_grad_enabled(False)
    known = {}
    for _ in range(rounds):
        for kernel, dtype, size, micros, throughput in ours(sys.argv[1], bench, device):
            key = (kernel, dtype, size)
            row = known.setdefault(key, {"throughput": throughput, "vramlab": [], "torch": []})
            row["vramlab"].append(micros)
            try:
                row["torch"].append(theirs(kernel, dtype, size, device, wait))
            except (RuntimeError, TypeError) as error:
                row["reason"] = str(error).splitlines()[0]
    rows = []
    order = [list(KERNELS), list(DTYPES)]
    by_size = lambda item: (*(names.index(name) for names, name in zip(order, item[0])), amounts(item[1]["throughput"])["bytes"])
    for (kernel, dtype, size), found in sorted(known.items(), key=by_size):
        nanos = round(statistics.median(found["vramlab"]) * 1e3)
        row = {"bench": f"beside/{device}/{kernel}/{dtype}/{size}", "ns": nanos, **amounts(found["throughput"])}
        if found["torch"]:
            row["torch_ns"] = round(statistics.median(found["torch"]) * 1e3)
            said = f"{nanos / 1e3:.1f} us, PyTorch {row['torch_ns'] / 1e3:.1f} us: {row['torch_ns'] / nanos:.2f} of its speed"
        else:
            row["reason"] = found["reason"]
            said = f"PyTorch says: {row['reason']}"
        print(f"{kernel} {dtype} {size}: {said}")
        rows.append(row)
    if not rows:
        sys.exit(f"{sys.argv[1]}: no kernels' measurements there")
    head = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "torch": torch.__version__, "device": name, "rounds": rounds}
    with open(sys.argv[2], "w") as out:
        out.write(json.dumps(head)[:-1] + ',\n"rows": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n")


main()
