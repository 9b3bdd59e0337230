"""CTC in a traced program. PyTorch does not trace it: what it saves grows with the longest target, which is a value.

The size of the loss itself depends on no value. While PyTorch traces a module, an operator that says this size stands in for
``torch.ctc_loss``; the program has PyTorch's own operator in its place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

# The stand-ins' names, and the forms of PyTorch's operator that they stand for: lengths as tensors, lengths as numbers.
_FORMS = {"ctc_loss": "Tensor", "ctc_loss_of_lengths": "IntList"}
_SCHEMA = "(Tensor probs, Tensor targets, {0} input_lengths, {0} target_lengths, int blank, int reduction, bool zero_infinity) -> Tensor"
# The library that has the stand-ins. They go when it does.
_LIBRARY: list[Any] = []


def _stand_ins() -> Any:
    """Returns the namespace of the stand-ins, which are made at the first call."""
    import torch

    if not _LIBRARY:
        library = torch.library.Library("vramlab", "FRAGMENT")
        own = torch.ctc_loss
        for name, form in _FORMS.items():
            library.define(name + _SCHEMA.format("Tensor" if form == "Tensor" else "int[]"))
            library.impl(name, lambda *args: own(*args), "CompositeExplicitAutograd")
            torch.library.register_fake(f"vramlab::{name}", _sizes, lib=library)
        _LIBRARY.append(library)
    return torch.ops.vramlab


def _sizes(probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int, reduction: int, zero_infinity: bool) -> Any:
    """Returns a loss for each sequence, or one where they are reduced, without values."""
    one_each = probs.shape[1:-1]
    return probs.new_empty([] if reduction else one_each)


@contextlib.contextmanager
def traced_ctc() -> Iterator[None]:
    """Lets PyTorch trace CTC inside the block, as an operator that :func:`with_ctc` replaces."""
    import torch

    own, stand_ins = torch.ctc_loss, _stand_ins()

    def ctc_loss(
        log_probs: Any,
        targets: Any,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: int = 1,
        zero_infinity: bool = False,
    ) -> Any:
        is_tensor = isinstance(input_lengths, torch.Tensor) and isinstance(target_lengths, torch.Tensor)
        call = stand_ins.ctc_loss if is_tensor else stand_ins.ctc_loss_of_lengths
        return call(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)

    torch.ctc_loss = ctc_loss
    try:
        yield
    finally:
        torch.ctc_loss = own


def with_ctc(graphs: list[Any]) -> None:
    """Puts PyTorch's own operator instead of the stand-ins."""
    import torch

    for graph in graphs:
        for node in graph.nodes:
            namespace, _, name = str(node.target).removesuffix(".default").partition(".")
            if node.op == "call_function" and namespace == "vramlab" and name in _FORMS:
                # The name stays: lifetimes refer to it.
                node.target = getattr(torch.ops.aten.ctc_loss, _FORMS[name])
