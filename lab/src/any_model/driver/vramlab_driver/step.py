"""A step of a program as one module, whose result is the loss, for an export."""

import sys

from .plan import Refused

# What the program's forward pass is for a class that computes its own loss.
PLAIN = ["outputs = model(**batch)", "loss = outputs.loss"]


def length(value):
    """As `len`, which fixes the size that it returns."""
    import torch

    return value.shape[0] if isinstance(value, torch.Tensor) else len(value)


def leave_lengths_open():
    """Lets the classes of transformers ask for lengths so that they stay open."""
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.models.") and ".modeling_" in name:
            module.__dict__["len"] = length


def of(plan, model, inputs):
    """Returns the network, if it returns its own loss and takes only tensors; otherwise a module around it, which computes as the program does."""
    import torch

    given = {name: value for name, value in inputs.items() if not isinstance(value, torch.Tensor)}
    if plan.forward == PLAIN and not given:
        return model
    names = list(tensors(inputs))
    text = ["def forward(self, %s):" % ", ".join(names), "    model, batch = self.network, {%s, **GIVEN}" % ", ".join("%r: %s" % (name, name) for name in names)]
    space = {"torch": torch, "GIVEN": given, "len": length}
    exec(compile("\n".join([*plan.imports, *text, *("    " + line for line in plan.forward), "    return loss, outputs"]), "<step>", "exec"), space)
    module = type(type(model).__name__, (torch.nn.Module,), {"forward": space["forward"]})()
    module.network = model
    return module


def tensors(inputs):
    import torch

    return {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}


def not_called(model, args, kwargs):
    raise Refused("torch.export cannot follow it")


def on_host(model):
    """Gives large tensors addresses on the host, which take memory only where something is written: a network partly on `meta` has two devices."""
    import torch

    moved, parameters = {}, {}

    def host(tensor):
        if id(tensor) not in moved:
            moved[id(tensor)] = (tensor, torch.empty_like(tensor, device="cpu"))
        return moved[id(tensor)][1]

    for module in model.modules():
        for name, part in module._parameters.items():
            if part is not None and part.is_meta:
                if id(part) not in parameters:
                    parameters[id(part)] = torch.nn.Parameter(host(part), requires_grad=part.requires_grad)
                module._parameters[name] = parameters[id(part)]
        for name, part in module._buffers.items():
            if part is not None and part.is_meta:
                module._buffers[name] = host(part)
    return model
