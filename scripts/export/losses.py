"""Exports small networks with their weights, and records the losses of PyTorch when it trains them on the CPU.

    python losses.py FOLDER                 FOLDER/NAME-weights.pt2.gz and FOLDER/losses.json
    python losses.py FOLDER optimizers      FOLDER/optimizer_losses.json: the convolutional network with every optimizer of torch.optim
    python losses.py FOLDER tuned           FOLDER/tuned_losses.json: networks of which some parameters are frozen, one with PEFT's adapters

Twenty steps of AdamW (lr 1e-3) on one batch, which is drawn as vramlab draws it: the same numbers on every machine.
"""
import functools
import json
import os
import sys

import torch
import torch.nn.functional as F

import architectures
import forms
import functions
import handwritten
from record import archived

MASK = (1 << 64) - 1


class SplitMix64:
    """Vigna's generator, and Lemire's integers below a bound."""

    def __init__(self, seed):
        self.state = seed & MASK

    def word(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def float(self):
        return 2.0 * ((self.word() >> 40) / (1 << 24)) - 1.0

    def below(self, bound):
        product = self.word() * bound
        if product & MASK < bound:
            threshold = ((1 << 64) - bound) % bound
            while product & MASK < threshold:
                product = self.word() * bound
        return product >> 64


def floats(sizes, seed):
    generator, count = SplitMix64(seed), torch.Size(sizes).numel()
    return torch.tensor([generator.float() for _ in range(count)]).view(sizes)


def indices(sizes, bound, seed):
    generator, count = SplitMix64(seed), torch.Size(sizes).numel()
    return torch.tensor([generator.below(bound) for _ in range(count)]).view(sizes)


def small_gpt():
    return handwritten.NanoGpt(width=32, heads=4, blocks=1, context=16, vocabulary=64, dropout=0.0)


def train(model, inputs, loss, optimized=torch.optim.AdamW):
    optimizer, losses = optimized(model.parameters(), lr=1e-3), []
    for _ in range(20):
        optimizer.zero_grad()
        value = loss(model(*inputs))
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


# Optimizers that the programs of `scripts/loop/techniques.py` have by other names.
USUAL: "dict[str, tuple[str, dict]]" = {"sgd": ("SGD", {}), "momentum": ("SGD", {"momentum": 0.9}), "adam": ("Adam", {}), "adamw": ("AdamW", {}), "adagrad": ("Adagrad", {})}


def adapted_gpt():
    """The decoder with adapters of PEFT on all of its linear layers but the last."""
    import peft

    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["attn", "proj", "fc", "out"])
    return peft.inject_adapter_in_model(config, small_gpt())


def tuned(folder, batch, runs):
    """The losses of networks of which some parameters are frozen: a network, and the patterns that `--freeze` takes."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../loop"))
    import loops

    losses = {}
    for name, patterns in [("cnn", "*,!fc"), ("cnn", "conv1,norm"), ("gpt", "h"), ("gpt", "wpe,h.0.attn"), ("adapted", "*,!*lora*")]:
        make, inputs, loss = runs[name]
        torch.manual_seed(0)
        losses[f"{name} {patterns}"] = train(loops.freeze(make().train(), patterns), inputs, loss)
    with open(os.path.join(folder, "tuned_losses.json"), "w") as file:
        json.dump({"torch": torch.__version__, "batch": batch, "losses": losses}, file)


def with_optimizers(folder, batch, make, inputs, loss):
    """The losses of one network with every optimizer of torch.optim by its name."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../loop"))
    import optimized

    losses = {}
    for name, (kind, arguments) in {**USUAL, **optimized.TORCH}.items():
        torch.manual_seed(0)
        losses[name] = train(make().train(), inputs, loss, functools.partial(getattr(torch.optim, kind), **arguments))
    with open(os.path.join(folder, "optimizer_losses.json"), "w") as file:
        json.dump({"torch": torch.__version__, "network": "cnn", "batch": batch, "losses": losses}, file)


def main():
    folder, batch = sys.argv[1], 4
    def classified(classes):
        return lambda out: F.cross_entropy(out, indices([batch], classes, 1 << 32))
    runs = {
        "cnn": (handwritten.Cnn, (floats([batch, 1, 8, 8], 0),), classified(10)),
        "cells": (architectures.Cells, (floats([batch, 6, 16], 0),), classified(4)),
        "gnn": (architectures.GraphNetwork, (floats([batch, 12, 16], 0),), classified(4)),
        "einsum": (architectures.EinsumSeq2Seq, (indices([batch, 10], 64, 0), indices([batch, 12], 64, 1)), lambda out: out),
        "indexed": (forms.Indexed, (floats([batch, 6, 24], 0),), lambda out: out),
        "equations": (forms.Equations, (floats([batch, 7, 12], 0),), lambda out: out),
        "functions": (lambda: functions.Functions(noise=False), (floats([batch, 64], 0),), lambda out: out),
        "segmenter": (functions.Segmenter, (floats([batch, 3, 16, 16], 0), indices([batch, 16, 16], 4, 1)), lambda out: out),
        "gpt": (small_gpt, (indices([batch, 16], 64, 0), indices([batch, 16], 64, 1)), lambda out: out[1]),
    }
    if sys.argv[2:] == ["optimizers"]:
        return with_optimizers(folder, batch, *runs["cnn"])
    runs["adapted"] = (adapted_gpt, *runs["gpt"][1:])
    if sys.argv[2:] == ["tuned"]:
        return tuned(folder, batch, runs)
    recorded = {}
    for name, (make, inputs, loss) in runs.items():
        torch.manual_seed(0)
        model = make().train()
        dim = torch.export.Dim("batch", min=1, max=65536)
        program = torch.export.export(model, tuple(x[:2] for x in inputs), dynamic_shapes=tuple({0: dim} for _ in inputs), strict=False)
        with open(os.path.join(folder, name + "-weights.pt2.gz"), "wb") as file:
            file.write(archived(program, weights=True))
        if name == "adapted":
            continue
        recorded[name] = train(model, inputs, loss)
    with open(os.path.join(folder, "losses.json"), "w") as file:
        json.dump({"torch": torch.__version__, "batch": batch, "losses": recorded}, file)


if __name__ == "__main__":
    main()
