#!/usr/bin/env python3
"""Records what PyTorch's optimizers and clipping compute: python3 optimizers.py > optimizers.json

Runs on the CPU, without a GPU. Every option set runs in each form that PyTorch has on a GPU. The forms must agree, so that
one list of float64 values stands for all of them; the float32 values are recorded for each form.
"""

import json
import sys

import torch
from torch.optim import adam

STEPS = 4
SHAPES = [(3, 2), (5,), ()]
# The largest gradients come early: with AMSGrad the largest second moment is then not the present one.
SCALES = [1.0, 0.25, 0.5, 0.0625]
# The forms compute the same values in another order. A capturable step counts in float32, whatever the parameter's type.
NEAR = {"for": 1e-14, "foreach": 1e-14, "fused": 1e-14, "foreach_capturable": 1e-6, "fused_capturable": 1e-14}

EVERY = ["for", "foreach", "fused"]
ADAM = EVERY + ["foreach_capturable", "fused_capturable"]
PAIR = ["for", "foreach"]

BASE_ADAM = {"lr": 0.05, "betas": [0.8, 0.95]}
RUNS = [
    ("SGD", "plain", EVERY, {"lr": 0.1}),
    ("SGD", "weight_decay", EVERY, {"lr": 0.1, "weight_decay": 0.3}),
    ("SGD", "maximize", EVERY, {"lr": 0.1, "maximize": True}),
    ("SGD", "maximize_weight_decay", EVERY, {"lr": 0.1, "maximize": True, "weight_decay": 0.3}),
    ("SGD", "momentum", EVERY, {"lr": 0.1, "momentum": 0.7}),
    ("SGD", "dampening", EVERY, {"lr": 0.1, "momentum": 0.7, "dampening": 0.4}),
    ("SGD", "nesterov", EVERY, {"lr": 0.1, "momentum": 0.7, "nesterov": True}),
    ("SGD", "nesterov_all", EVERY, {"lr": 0.1, "momentum": 0.7, "nesterov": True, "maximize": True, "weight_decay": 0.3}),
    ("SGD", "dampening_all", EVERY, {"lr": 0.1, "momentum": 0.7, "dampening": 0.4, "maximize": True, "weight_decay": 0.3}),
    *(
        (optimizer, name, ADAM, {**BASE_ADAM, "weight_decay": 0.0, **options})  # type: ignore[dict-item]
        for optimizer in ("Adam", "AdamW")
        for name, options in [
            ("plain", {}),
            ("weight_decay", {"weight_decay": 0.3}),
            ("amsgrad", {"amsgrad": True}),
            ("maximize", {"maximize": True}),
            ("eps", {"eps": 0.2}),
            ("all", {"weight_decay": 0.3, "amsgrad": True, "maximize": True, "eps": 0.01}),
        ]
    ),
    ("RMSprop", "plain", PAIR, {"lr": 0.05, "alpha": 0.8}),
    ("RMSprop", "weight_decay", PAIR, {"lr": 0.05, "alpha": 0.8, "weight_decay": 0.3}),
    ("RMSprop", "momentum", PAIR, {"lr": 0.05, "alpha": 0.8, "momentum": 0.7}),
    ("RMSprop", "centered", PAIR, {"lr": 0.05, "alpha": 0.8, "centered": True}),
    ("RMSprop", "maximize", PAIR, {"lr": 0.05, "alpha": 0.8, "maximize": True}),
    ("RMSprop", "eps", PAIR, {"lr": 0.05, "alpha": 0.8, "eps": 0.2}),
    ("RMSprop", "all", PAIR, {"lr": 0.05, "alpha": 0.8, "eps": 0.01, "weight_decay": 0.3, "momentum": 0.7,
                              "centered": True, "maximize": True}),
    ("Adagrad", "plain", PAIR, {"lr": 0.2}),
    ("Adagrad", "lr_decay", PAIR, {"lr": 0.2, "lr_decay": 0.5}),
    ("Adagrad", "weight_decay", PAIR, {"lr": 0.2, "weight_decay": 0.3}),
    ("Adagrad", "initial", PAIR, {"lr": 0.2, "initial_accumulator_value": 0.4}),
    ("Adagrad", "maximize", PAIR, {"lr": 0.2, "maximize": True}),
    ("Adagrad", "eps", PAIR, {"lr": 0.2, "eps": 0.2}),
    ("Adagrad", "all", PAIR, {"lr": 0.2, "lr_decay": 0.5, "weight_decay": 0.3, "initial_accumulator_value": 0.4,
                              "maximize": True, "eps": 0.01}),
]

# Further optimizers of torch.optim, each alone, under maximize, and with all of its options.
BASES = {
    "Adadelta": {"lr": 0.5, "rho": 0.8}, "NAdam": {**BASE_ADAM, "momentum_decay": 0.1}, "RAdam": {"lr": 0.05, "betas": [0.6, 0.7]},
    "Adamax": BASE_ADAM, "ASGD": {"lr": 0.1, "lambd": 0.2, "t0": 1.0}, "Rprop": {"lr": 0.1}, "Adafactor": {"lr": 0.1},
}
ALL = {"weight_decay": 0.3, "maximize": True}
DECOUPLED = {"weight_decay": 0.3, "decoupled_weight_decay": True}
RUNS += [
    (optimizer, name, ["for"] if optimizer == "Adafactor" else PAIR, {**base, **options})  # type: ignore[dict-item]
    for optimizer, base in BASES.items()
    for name, options in [("plain", {}), ("maximize", {"maximize": True})]
    + ([("all", ALL)] if optimizer != "Rprop" else [])
    + ([("decoupled", DECOUPLED)] if optimizer in ("NAdam", "RAdam") else [])
]

CLIPS = [
    ("norm_above", {"max_norm": 1.5}),
    ("norm_below", {"max_norm": 100.0}),
    ("value", {"clip_value": 0.3}),
]


def inputs():
    """Parameters and gradients that float32 holds exactly; some gradients are 0, one is missing."""
    generator = torch.Generator().manual_seed(7)

    def draw(shape, scale):
        return (torch.randint(-512, 513, shape, generator=generator) / 256 * scale).double()

    parameters = [draw(shape, 1.0) for shape in SHAPES]
    gradients = [[draw(shape, scale) for shape in SHAPES] for scale in SCALES]
    gradients[0][0][1, 0] = 0.0
    gradients[1][0][1, 0] = 0.0
    gradients[2][1][2] = 0.0
    gradients[1][1] = None
    return parameters, gradients


def flat(tensor):
    """The elements in row-major order; of float32 the nine digits that name each number."""
    values = tensor.detach().reshape(-1).tolist()
    return [float(f"{x:.9g}") for x in values] if tensor.dtype == torch.float32 else values


def leaves(parameters, dtype):
    return [p.to(dtype).clone().requires_grad_() for p in parameters]


def set_gradients(parameters, gradients):
    for p, g in zip(parameters, gradients):
        p.grad = None if g is None else g.to(p.dtype).clone()


def run(optimizer, options, form, dtype, parameters, gradients):
    parameters = leaves(parameters, dtype)
    switches = {"foreach": form.startswith("foreach")}
    if form.startswith("fused"):
        switches["fused"] = True
    if form.endswith("capturable"):
        switches["capturable"] = True
    made = getattr(torch.optim, optimizer)(parameters, **options, **switches)
    after = []
    for step in gradients:
        set_gradients(parameters, step)
        made.step()
        after.append([flat(p) for p in parameters])
    state = {}
    for p in parameters:
        for name, value in made.state[p].items():
            # NAdam's product follows from the number of steps.
            if value is not None and name != "mu_product":
                state.setdefault(name, []).append(flat(value))
    return {"parameters": after, "state": state}


def numbers(value):
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return [value]
    return [x for part in value for x in numbers(part)]


def agree(name, one, other, near):
    for x, y in zip(numbers(one), numbers(other), strict=True):
        if not abs(x - y) <= near * max(1.0, abs(x)):
            sys.exit(f"{name}: {x} and {y}")


def recorded(optimizer, name, forms, options, parameters, gradients):
    double = {form: run(optimizer, options, form, torch.float64, parameters, gradients) for form in forms}
    for form in forms:
        # ASGD keeps its learning rate in float32, whatever the parameter's type; the lists compute it so, too.
        near = 1e-6 if optimizer == "ASGD" else NEAR[form]
        agree(f"{optimizer} {name} {form}", double["for"], double[form], near)
    single = {form: run(optimizer, options, form, torch.float32, parameters, gradients) for form in forms}
    return {
        "optimizer": optimizer,
        "name": name,
        "options": options,
        "float64": double["for"],
        "float32": {form: single[form]["parameters"][-1] for form in forms},
    }


def clipped(name, options, parameters, gradients):
    out = {"name": name, "options": options}
    for foreach in (False, True):
        for dtype in (torch.float64, torch.float32):
            ours = leaves(parameters, dtype)
            set_gradients(ours, gradients)
            if name == "value":
                torch.nn.utils.clip_grad_value_(ours, **options, foreach=foreach)
                total = None
            else:
                total = torch.nn.utils.clip_grad_norm_(ours, **options, foreach=foreach).item()
            result = {"norm": total, "gradients": [flat(p.grad) for p in ours]}
            if dtype == torch.float64:
                if "float64" in out:
                    agree(name, numbers(out["float64"]["gradients"]), numbers(result["gradients"]), 1e-14)
                out["float64"] = result
    return out


def main():
    # The capturable forms ask for a GPU; what they compute is the same on a CPU.
    adam._get_capturable_supported_devices = lambda supports_xla=True: ["cpu"]
    parameters, gradients = inputs()
    lists = lambda tensors: [None if t is None else flat(t) for t in tensors]
    record = {
        "torch": torch.__version__,
        "shapes": SHAPES,
        "parameters": lists(parameters),
        "gradients": [lists(step) for step in gradients],
        "runs": [recorded(*row, parameters, gradients) for row in RUNS],
        "clips": [clipped(*row, parameters, gradients[0]) for row in CLIPS],
    }
    print("{")
    fields = []
    for key, value in record.items():
        if key in ("runs", "clips"):
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            fields.append(f"{json.dumps(key)}: [\n{rows}\n]")
        else:
            fields.append(f"{json.dumps(key)}: {json.dumps(value)}")
    print(",\n".join(fields))
    print("}")


main()
