"""Converts an optimizer of PyTorch to flags."""

from __future__ import annotations

from typing import Any

from ._binary import VramlabError

# Classes whose name here is not their own in lower case, and those that the program does not have.
_OTHERWISE = {"Adafactor": "torch-adafactor"}
_MISSING = ("LBFGS", "Muon", "SparseAdam")

# Options that the program has as switches of the same names.
_SWITCHES = ("amsgrad", "maximize", "capturable", "nesterov")

# Options that keep more memory than the program represents.
_NOT_REPRESENTED = ("differentiable",)


def flags_of(optimizer: Any) -> dict[str, Any]:
    """Returns the flags for an optimizer, which is a name or an object of ``torch.optim``.

    Raises :class:`VramlabError` for an optimizer or option that the program does not represent.
    """
    if optimizer is None or isinstance(optimizer, str):
        return {"optimizer": optimizer}
    kind = type(optimizer)
    if not kind.__module__.startswith("torch.optim") or kind.__name__ in _MISSING:
        raise VramlabError(f"optimizer: vramlab does not support {kind.__module__}.{kind.__name__}")
    groups = optimizer.param_groups
    if len(groups) != 1:
        raise VramlabError(f"optimizer: vramlab does not support {len(groups)} groups of parameters; name the optimizer to leave them out")
    group = groups[0]
    for name in _NOT_REPRESENTED:
        if group.get(name):
            raise VramlabError(f"optimizer: vramlab does not support {name}=True")
    name = _OTHERWISE.get(kind.__name__, kind.__name__.lower())
    if name == "rmsprop" and group.get("momentum") and group.get("centered"):
        raise VramlabError("optimizer: vramlab does not support RMSprop with momentum and centered")
    if name == "rmsprop":
        name = "rmsprop-momentum" if group.get("momentum") else "rmsprop-centered" if group.get("centered") else name
    if name in ("nadam", "radam") and group.get("decoupled_weight_decay"):
        name += "w"
    if name == "sgd" and group.get("momentum"):
        name = "momentum"
    found: dict[str, Any] = {"optimizer": name, "lr": float(group["lr"]), "weight_decay": float(group.get("weight_decay", 0.0))}
    if group.get("fused"):
        found["optimizer_impl"] = "fused"
    elif group.get("foreach") is not None:
        found["optimizer_impl"] = "foreach" if group["foreach"] else "loop"
    found.update({switch: True for switch in _SWITCHES if group.get(switch)})
    return found
