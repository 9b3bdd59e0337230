"""Exports a network for further questions: the graph of the whole, or of its first layers, from which that of all others follows."""

import gzip
import json
import os
import re
import zipfile

from . import fold, step
from .plan import Refused

# Most numbered modules of a network that is traced as a whole, and most layers that are traced of one that repeats.
MOST_MODULES, MOST_LAYERS = 64, 12
STACK = re.compile(r"(^|\.)(layers|layer|h|blocks|block)$")


def write(plan, model, options, into, again):
    """Exports the network into the folder `into`, and returns what was written. `again(config)` plans a network of the same class.

    Raises `Refused` with the reason if the network has no graph."""
    if any("BATCH" in one.expression for one in plan.inputs if one.nested):
        raise Refused("only a network whose inputs are tensors is exported")
    stack = stack_of(model)
    kinds = kinds_of(model, stack) if stack else []
    layers = enough(kinds)
    config = getattr(model, "config", None)
    if layers and hasattr(config, "num_hidden_layers") and config.num_hidden_layers == len(kinds):
        try:
            return folded(plan, model, options, into, layers, kinds, again)
        except fold.Cannot as error:
            reason = str(error).split(":")[0]
            if plan.layers > MOST_MODULES:
                raise Refused("its layers do not repeat (%s)" % reason) from None
    if plan.layers > MOST_MODULES:
        raise Refused("%d numbered modules are too many to trace" % plan.layers)
    path = os.path.join(into, "graph.pt2")
    export(plan, model, options, path)
    return {"file": path}


def folded(plan, model, options, into, layers, kinds, again):
    """Exports the first layers, and folds them."""
    first, cut = again(layers)
    path = os.path.join(into, "first.pt2")
    export(first, cut, options, path)
    with zipfile.ZipFile(path) as archive:
        entry = lambda ending: json.loads(archive.read(next(one for one in archive.namelist() if one.endswith(ending))))
        program, beside = entry("models/model.json"), entry("extra/vramlab.json")
    if beside.get("recorded"):
        raise Refused("torch.export cannot follow it")
    resize(program, cut, model)
    graph = fold.fold(program, beside, kinds)
    if len(graph["layers"]) != 1:
        raise fold.Cannot("several stacks of layers")
    graph.update(positions=2**31, library=plan.library, **{"class": plan.class_name})
    path = os.path.join(into, "graph.json.gz")
    with open(path, "wb") as file:
        file.write(gzip.compress(json.dumps(graph, separators=(",", ":")).encode(), 6, mtime=0))
    return {"file": path}


def resize(program, cut, model):
    """Gives parameters and buffers beside the layers the sizes of the whole network: a head that reads all layers is larger there.

    Raises `fold.Cannot` if an operator takes one of them: then its results have other sizes, too."""
    tensors = lambda of: dict([*of.named_parameters(), *of.named_buffers()])
    graph, signature, ours, whole = program["graph_module"]["graph"], program["graph_module"]["signature"], tensors(cut), tensors(model)
    taken = {name for node in graph["nodes"] for one in node["inputs"] for name in fold.names_of(one["arg"])}
    stacks = fold.Stacks()
    for spec in signature["input_specs"]:
        for what in spec.values():
            # The graph may be of a module around the network (`step.of`).
            path = next((what[key] for key in ("parameter_name", "buffer_name") if key in what), "")
            path = path if path in ours else path.removeprefix("network.")
            if path not in ours or path not in whole or ours[path].shape == whole[path].shape or stacks.owner(path):
                continue
            name = what["arg"]["name"]
            if name in taken:
                raise fold.Cannot("%s has other sizes in a network of more layers" % path)
            graph["tensor_values"][name]["sizes"] = [{"as_int": size} for size in whole[path].shape]


def export(plan, model, options, path):
    """Exports one network. The batch is at least 2, so that PyTorch leaves it open."""
    import torch

    from .exporting import export as exporting

    space = {"torch": torch, "BATCH": max(2, options["batch"]), "SEQUENCE": plan.tokens}
    inputs = {one.name: eval(one.expression, space) for one in plan.inputs}
    step.leave_lengths_open()
    # Checks of transformers ask for values that no network depends on.
    os.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"
    # What asks for values is called, and then it would compute.
    exporting.recorded = step.not_called
    exporting.export(step.of(plan, step.on_host(model.train()), inputs), path=path, **step.tensors(inputs))


def stack_of(model):
    """The one list of layers that repeats, or None."""
    found = [module for name, module in model.named_modules() if type(module).__name__ == "ModuleList" and STACK.search(name) and len(module) > 3]
    return found[0] if len(found) == 1 else None


def kinds_of(model, stack):
    """A word for each layer: equal for layers that are made alike."""
    config = getattr(model, "config", None)
    types = getattr(config, "layer_types", None) or [""] * len(stack)
    rotates = getattr(config, "no_rope_layers", None) or [1] * len(stack)
    if len(types) != len(stack) or len(rotates) != len(stack):
        return []
    made = ["%s %s %s" % (type(layer).__name__, kind, rotated) + "".join(
        " %s%s%s" % (name, tuple(part.shape), part.requires_grad) for name, part in layer.named_parameters())
        for layer, kind, rotated in zip(stack, types, rotates)]
    numbers = {}
    return ["kind %d" % numbers.setdefault(one, len(numbers)) for one in made]


def enough(kinds):
    """The fewest first layers that show every kind after every other that it follows, and end as the network does; 0 if these are too many."""
    keys = ["layer %d" % layer if layer < 2 else "%s after %s" % (kinds[layer], kinds[layer - 1]) for layer in range(len(kinds))]
    for layers in range(4, min(MOST_LAYERS, len(kinds) - 1) + 1):
        if set(keys) <= set(keys[:layers - 1]) and keys[layers - 1] == keys[-1]:
            return layers
    return 0
