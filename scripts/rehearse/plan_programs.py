"""Programs for plans whose script vramlab does not write: the one that `vramlab predict --script` prints of the network, with the plan's settings.

A network that is not built in is exported from the same program, without weights, and planned as a .pt2."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Fields of a plan that the printed program says.
SAID = ("batch", "accumulate", "optimizer", "optimizer-impl", "lr", "precision", "sequence", "attention", "zero-grad", "clip-grad-norm", "keep", "loss")
# Those that change no line of it, or that `with_plan` writes.
BESIDE = ("model", "model-file", "gpu", "steps", "seed", "data", "alloc-conf", "checkpoint", "save-on-cpu", "memory-limit", "lora", "lora-target")

MADE = 'model = build().to("cuda").train()'
CALL = "loss, outputs = forward(model, batch)"

BLOCKS = """from functools import partial
from torch.utils.checkpoint import checkpoint
for path in %r:
    block = model.get_submodule(path)
    block.forward = partial(checkpoint, block.forward, use_reentrant=False)"""
LAYERS = """from functools import partial
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer
blocks = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
for number, block in enumerate(blocks):
    if %s:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)"""

EXPORT = """import importlib.util, sys
import torch
import vramlab


def not_called(*_):
    raise RuntimeError("torch.export cannot follow it")


# What asks for values is called once, and then it would compute.
sys.modules["vramlab.export"].recorded = not_called
spec = importlib.util.spec_from_file_location("program", sys.argv[1])
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)


inputs = program.inputs()
names = ", ".join(inputs)
space = {"program": program}
exec(f"def forward(self, {names}): return program.forward(self.network, dict({', '.join(f'{name}={name}' for name in inputs)}))[0]", space)
Step = type("Step", (torch.nn.Module,), {"forward": space["forward"]})
for name, module in list(sys.modules.items()):
    if name.startswith("transformers.models.") and ".modeling_" in name:
        module.__dict__["len"] = lambda value: value.shape[0] if isinstance(value, torch.Tensor) else len(value)
with torch.device("meta"):
    network = program.build()
tied = {}
for name, parameter in network.named_parameters(remove_duplicate=False):
    tied.setdefault(parameter, []).append(name)
step = Step()
step.network = network.to_empty(device="cpu").train()
# `to_empty` makes a parameter for each of its names.
for first, *others in tied.values():
    for other in others:
        module, _, name = other.rpartition(".")
        setattr(network.get_submodule(module), name, network.get_parameter(first))
vramlab.export(step, path=sys.argv[2], **inputs)
"""


def printed(vramlab, python, word, flags, folder):
    """The program of a network, with the flags of a prediction."""
    command = [vramlab, "predict", word, "--python", python, "--script", *flags]
    run = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if run.returncode or CALL not in run.stdout:
        raise ValueError(f"no program of {pathlib.Path(word).name}: {(run.stderr.strip().splitlines() or [str(run.returncode)])[-1]}")
    return run.stdout


def exported(vramlab, python, word, flags, folder):
    """Writes `network.pt2` of the program into the folder."""
    program, file = folder / "program.py", folder / "network.pt2"
    program.write_text(printed(vramlab, python, word, [*flags, "--batch", "2", "--keep", "loss"], folder))
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"), TRANSFORMERS_DISABLE_TORCH_CHECK="1", CUDA_VISIBLE_DEVICES="")
    run = subprocess.run([python, "-c", EXPORT, program, file], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if not file.exists():
        raise ValueError(f"no export of {word}: {(run.stderr.strip().splitlines() or [str(run.returncode)])[-1]}")


def with_plan(vramlab, python, word, flags, plan, again, folder):
    """The program with a plan's fields. `again`: paths of the modules that are computed again, of an export; None of a network that is built in."""
    unsaid = [name for name in plan if name not in SAID and name not in BESIDE]
    if unsaid:
        raise ValueError(f"the program does not say {', '.join(unsaid)}")
    said = [word for name in SAID if name in plan for word in (f"--{name}", str(plan[name]))]
    # An export ends with the loss.
    keeps = [] if again is None else ["--keep", "loss"]
    text = printed(vramlab, python, word, [*flags, *said, *keeps], folder)
    return with_saving(with_blocks(text, plan.get("checkpoint", "none"), again), plan.get("save-on-cpu"))


def with_blocks(text, checkpoint, again):
    """The program with blocks that are computed again."""
    if checkpoint == "none":
        return text
    if again is not None:
        lines = BLOCKS % again
    else:
        lines = LAYERS % ("True" if checkpoint == "blocks" else f"number in {[int(number) for number in checkpoint.split(',')]}")
    return text.replace(MADE, "\n    ".join([MADE, *lines.splitlines()]))


def fields_of(command):
    """The flags of a command, by their names; True for one without a value."""
    fields, name = {}, None
    for word in command:
        if word.startswith("--"):
            name = word[2:]
            fields[name] = True
        elif name:
            fields[name], name = word, None
    return fields


def recomputed(warnings):
    """Paths of the modules that an answer about an export names as computed again, where a dash stands between the first and the last number."""
    said = next((line.split("(--checkpoint): ")[1] for line in warnings if "(--checkpoint): " in line), "")
    paths = []
    for part in said.rstrip(".").split(", ") if said else []:
        first, _, last = part.partition("\u2013")
        name = first.rstrip("0123456789")
        paths += [f"{name}{number}" for number in range(int(first[len(name) :]), int(last) + 1)] if last else [first]
    return [path.removeprefix("network.") for path in paths]


def with_saving(text, where):
    """The program with what is saved for backward on the host."""
    if where in (None, "none"):
        return text
    pinned = "True" if where == "pinned" else "False"
    lines = [line for line in text.splitlines() if line.strip() == CALL]
    indent = lines[0][: len(lines[0]) - len(CALL)]
    inside = f"{indent}with torch.autograd.graph.save_on_cpu(pin_memory={pinned}):\n{indent}    {CALL}"
    return text.replace(lines[0], inside)


if __name__ == "__main__":
    sys.exit(__doc__)
