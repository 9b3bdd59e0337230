"""Programs of the groups e, g and h without operators: fully connected networks under every way of training; memory that runs out; every
optimizer; clipping."""
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from small_networks import CUDA, optimizer


def mlp(layers, width, inputs, outputs=10):
    """Linear layers with ReLU between them."""
    made, size = [], inputs
    for _ in range(layers):
        made += [nn.Linear(size, width), nn.ReLU()]
        size = width
    return nn.Sequential(*made, nn.Linear(size, outputs))


def by_checkpoints(model, layers, x):
    """The forward pass, each layer a checkpoint."""
    for index in range(layers):
        x = checkpoint(model[2 * index : 2 * index + 2], x, use_reentrant=False)
    return model[2 * layers](x)


def trained(row, layers, width, batch, inputs, kind="adam", lower=None, pure=None, checkpoints=False, accumulation=1, set_none=True, **options):
    """Three steps."""
    model = mlp(layers, width, inputs).to(CUDA)
    row("model")
    if pure:
        model = model.to(pure)
        row("cast")
    made = optimizer(kind, model.parameters(), **options)
    scaler = torch.amp.GradScaler("cuda") if lower == torch.float16 else None
    for step in range(3):
        made.zero_grad(set_to_none=set_none)
        row(f"s{step}.zero_grad")
        for micro in range(accumulation):
            tag = f"s{step}." + (f"m{micro}." if accumulation > 1 else "")
            x = torch.randn(batch, inputs, device=CUDA, dtype=pure)
            y = torch.randn(batch, 10, device=CUDA, dtype=pure)
            row(tag + "input")
            with torch.autocast("cuda", dtype=lower) if lower else contextlib.nullcontext():
                out = by_checkpoints(model, layers, x) if checkpoints else model(x)
                row(tag + "forward")
                loss = F.mse_loss(out, y)
            if accumulation > 1:
                loss = loss / accumulation
            row(tag + "loss")
            (scaler.scale(loss) if scaler else loss).backward()
            row(tag + "backward")
        if scaler:
            scaler.step(made)
            row(f"s{step}.step")
            scaler.update()
            row(f"s{step}.update")
        else:
            made.step()
            row(f"s{step}.step")


def out_of_memory(row):
    """Batches of which some do not fit; the program goes on."""
    model = mlp(4, 1024, 512).to(CUDA)
    made = optimizer("adamw", model.parameters())
    row("model")
    for batch in (256, 1024, 4096, 8192, 256):
        try:
            x = torch.randn(batch, 512, device=CUDA)
            y = torch.randn(batch, 10, device=CUDA)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            made.step()
            made.zero_grad()
            row(f"b{batch}.ok")
        except torch.OutOfMemoryError as error:
            row.notes.append(["oom", str(error)])
            row(f"b{batch}.oom")
            del error
        x = y = loss = None
        made.zero_grad()
        row(f"b{batch}.cleared")


def clipping(row):
    """Gradients that are clipped by norm and by value."""
    model = mlp(3, 512, 256).to(CUDA)
    x = torch.randn(64, 256, device=CUDA)
    model(x).sum().backward()
    row("grads")
    for foreach in (None, True, False):
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=foreach)
        row(f"clip foreach={foreach}")
        del norm
    nn.utils.clip_grad_value_(model.parameters(), 1.0)
    row("clip_value")


OPTIMIZERS: list = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("SGD", {"lr": 0.1, "weight_decay": 0.1}), ("SGD", {"lr": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "fused": True}), ("Adam", {}), ("Adam", {"weight_decay": 0.1}), ("Adam", {"fused": True}), ("AdamW", {}),
    ("AdamW", {"foreach": False}), ("AdamW", {"amsgrad": True}), ("RMSprop", {}), ("RMSprop", {"momentum": 0.9, "centered": True}), ("Adagrad", {}),
    ("Adadelta", {}), ("NAdam", {}), ("RAdam", {}), ("Adamax", {}), ("ASGD", {}), ("Rprop", {}),
]


def optimizers(row):
    """Two steps of each optimizer."""
    for name, options in OPTIMIZERS:
        model = mlp(2, 512, 256).to(CUDA)
        x = torch.randn(64, 256, device=CUDA)
        model(x).sum().backward()
        del x
        torch.cuda.empty_cache()
        tag = name + str(options)
        made = getattr(torch.optim, name)(model.parameters(), **options)
        row(tag + ".grads")
        made.step()
        row(tag + ".step1")
        made.step()
        row(tag + ".step2")
        del model, made
        row(tag + ".deleted")
