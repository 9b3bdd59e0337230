"""Optimizers by the fields of a run: of torch.optim, transformers and bitsandbytes, of parts of the parameters, and with their steps in backward."""
import functools
import typing

# Each optimizer of torch.optim: its class, and the arguments that its name says.
TORCH: "dict[str, tuple[str, dict]]" = {
    "rmsprop": ("RMSprop", {}), "rmsprop-momentum": ("RMSprop", {"momentum": 0.9}), "rmsprop-centered": ("RMSprop", {"centered": True}),
    "adadelta": ("Adadelta", {}), "nadam": ("NAdam", {}), "nadamw": ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.01}),
    "radam": ("RAdam", {}), "radamw": ("RAdam", {"decoupled_weight_decay": True, "weight_decay": 0.01}), "adamax": ("Adamax", {}), "asgd": ("ASGD", {}),
    "rprop": ("Rprop", {}), "torch-adafactor": ("Adafactor", {}),
}
# bitsandbytes' classes, and the arguments that decide their memory.
BITSANDBYTES = {
    "adamw8bit": "AdamW8bit", "paged-adamw8bit": "PagedAdamW8bit", "paged-adamw": "PagedAdamW32bit", "adam8bit": "Adam8bit", "lion": "Lion32bit",
    "lion8bit": "Lion8bit", "paged-lion": "PagedLion32bit", "paged-lion8bit": "PagedLion8bit", "lamb": "LAMB32bit",
    "rmsprop8bit": "RMSprop8bit", "momentum8bit": "SGD8bit", "adagrad8bit": "Adagrad8bit",
    "ademamix": "AdEMAMix", "ademamix8bit": "AdEMAMix8bit", "paged-ademamix8bit": "PagedAdEMAMix8bit",
    "paged-ademamix": "PagedAdEMAMix", "paged-adam8bit": "PagedAdam8bit",
}


class Several:
    """Optimizers of parts of the parameters."""

    def __init__(self, optimizers):
        self.optimizers = optimizers

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


class InBackward:
    """An optimizer for each parameter, which steps as soon as its gradient is there, and frees it."""

    def __init__(self, make, parameters):
        self.each = {parameter: make(parameter) for parameter in parameters if parameter.requires_grad}
        for parameter in self.each:
            parameter.register_post_accumulate_grad_hook(self.stepped)

    def stepped(self, parameter):
        self.each[parameter].step()
        self.each[parameter].zero_grad()

    def zero_grad(self):
        pass

    def step(self):
        pass


def muon(named, arguments):
    """Muon of the matrices of numbered modules, AdamW of the rest, both with these arguments."""
    import torch

    trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    ours = [parameter for name, parameter in trained if parameter.ndim == 2 and any(part.isdigit() for part in name.split("."))]
    others = [parameter for _, parameter in trained if all(parameter is not one for one in ours)]
    return Several([kind(part, **{"lr": 1e-4, **arguments}) for kind, part in ((torch.optim.Muon, ours), (torch.optim.AdamW, others)) if part])


def by_name(made: typing.Any):
    """Marks what makes an optimizer of parameters with their names."""
    made.by_name = True
    return made


def optimizer_of(fields):
    """What makes the optimizer that the fields of a run name, with its steps in backward if they say so."""
    made = optimizer_alone(fields)
    if fields.get("step-in-backward"):
        if getattr(made, "by_name", False):
            def each(named):
                names = {parameter: name for name, parameter in named}
                return InBackward(lambda parameter: made([(names[parameter], parameter)]), names)

            return by_name(each)
        return lambda parameters: InBackward(lambda parameter: made([parameter]), parameters)
    return made


def optimizer_alone(fields):
    """What makes the optimizer that the fields of a run name."""
    import torch

    if fields["optimizer"] == "muon":
        def made(named):
            return muon(named, {"weight_decay": fields["weight-decay"]} if "weight-decay" in fields else {})

        return by_name(made)
    name, decay = fields["optimizer"], {"weight_decay": fields["weight-decay"]} if "weight-decay" in fields else {}
    if name in BITSANDBYTES:
        import bitsandbytes

        more = {"momentum": 0.9} if name == "momentum8bit" else {}
        return functools.partial(getattr(bitsandbytes.optim, BITSANDBYTES[name]), lr=1e-4, **more, **decay)
    if name == "adafactor":
        import transformers

        return functools.partial(transformers.Adafactor, lr=1e-4, scale_parameter=False, relative_step=False, **decay)
    kind, arguments = {**TORCH, "adamw": ("AdamW", {}), "sgd": ("SGD", {})}[name]
    form = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}.get(fields.get("optimizer-impl"), {})
    more = {"maximize": True} if fields.get("maximize") else {}
    return functools.partial(getattr(torch.optim, kind), lr=1e-4, **{**arguments, **decay}, **form, **more)
