"""Makes transformers trace the masks that an untraced training has.

While PyTorch traces a module, transformers cannot read a tensor's values. It then makes masks that training does without: if no token is
hidden, attention needs no mask. Here transformers takes the path of an untraced run, and gets the values of the example.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Callable

# Functions by which transformers detects a trace.
_QUESTIONS = ("is_tracing", "is_torchdynamo_compiling", "is_torchdynamo_exporting")
# One only warns of padding without a mask: its answer does not change the network. Without knowing that it is traced, the other
# asks PyTorch for products that have no trace.
_LEFT_ALONE = ("transformers.modeling_utils", "transformers.integrations.moe")


def _no(*_: Any, **__: Any) -> bool:
    return False


@contextlib.contextmanager
def as_in_training(inputs: Sequence[Any]) -> Iterator[bool]:
    """Traces transformers as in training; yields whether transformers is in use. ``inputs`` are the example's leaves, with values.

    A release without these functions is not changed.
    """
    import torch

    # Names of modules, each with what it stands for and what it is to stand for meanwhile.
    changed: list[tuple[dict[str, Any], str, Callable[..., Any], Callable[..., Any]]] = []
    for name, module in list(sys.modules.items()):
        if not name.startswith("transformers.") or name in _LEFT_ALONE:
            continue
        names = getattr(module, "__dict__", {})
        changed += [(names, asked, names[asked], _no) for asked in _QUESTIONS if callable(names.get(asked))]
    if not changed:
        yield False
        return
    masking: dict[str, Any] = getattr(sys.modules.get("transformers.masking_utils"), "__dict__", {})
    expansion: Any = masking.get("_vmap_expansion_sdpa")
    if callable(expansion):
        changed.append((masking, "_vmap_expansion_sdpa", expansion, lambda function: _without_vmap(expansion(function))))
    truths = {torch.Tensor.__bool__, torch.Tensor.item}

    class Answers(torch.overrides.TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function in truths and args[0].dtype == torch.bool and _asked_by_transformers():
                answer = _value(args[0], inputs)
                # Keeps the value in the graph, which would otherwise lose it as unused. The check itself needs no memory.
                torch.ops.aten._assert_tensor_metadata.default(args[0], dtype=torch.bool)
                return answer
            return function(*args, **(kwargs or {}))

    try:
        for names, name, _, meanwhile in changed:
            names[name] = meanwhile
        with Answers():
            yield True
    finally:
        for names, name, function, _ in changed:
            names[name] = function


def _without_vmap(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that computes as ``function``, by the operators that PyTorch makes of its ``vmap``, which a file cannot have."""
    from torch.fx.experimental import proxy_tensor

    recorder: Any = getattr(proxy_tensor, "PreDispatchTorchFunctionMode", None)

    def passed(self: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))

    def call(*args: Any) -> Any:
        records = recorder.__torch_function__
        recorder.__torch_function__ = passed
        try:
            with proxy_tensor.disable_proxy_modes_tracing():
                graph = proxy_tensor.make_fx(function, tracing_mode="real", _allow_non_fake_inputs=True)(*args)
        finally:
            recorder.__torch_function__ = records
        return graph(*args)

    return call if recorder is not None else function


def _asked_by_transformers() -> bool:
    """Returns True if the innermost frame outside of PyTorch and this file is in transformers."""
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != __name__ and module.split(".")[0] != "torch":
            return module.startswith("transformers.")
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _value(tensor: Any, inputs: Sequence[Any]) -> bool:
    """Computes a traced truth value from the values of the example."""
    from torch.fx.experimental import proxy_tensor
    from torch.utils._python_dispatch import _disable_current_modes

    mode = proxy_tensor.get_proxy_mode()
    tracer: Any = getattr(mode, "tracer", None)
    node = proxy_tensor.get_proxy_slot(tensor, tracer).proxy.node
    with _disable_current_modes():
        return bool(_Values(tracer.root, node.graph, inputs).of(node))


class _Values:
    """Values of nodes, computed where they are needed."""

    def __init__(self, root: Any, graph: Any, inputs: Sequence[Any]) -> None:
        self._root = root
        self._known: dict[Any, Any] = {}
        # The example's leaves come last, after parameters and buffers.
        given = [node for node in graph.nodes if node.op == "placeholder"]
        for node, value in zip(given[len(given) - len(inputs) :], inputs):
            # A different type means an unknown order: the node then has no value.
            if getattr(node.meta.get("val"), "dtype", None) == getattr(value, "dtype", None):
                self._known[node] = value

    def of(self, node: Any) -> Any:
        import torch

        if node not in self._known:
            # Masks do not depend on parameters, and a module without values has none to give.
            if node.op not in ("call_function", "get_attr"):
                raise ValueError(f"{node.name} has no value")
            if node.op == "get_attr":
                value = getattr(self._root, node.target)
            else:
                args, kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), self._given)
                value = node.target(*args, **kwargs)
            if isinstance(value, torch.Tensor) and value.is_meta:
                raise ValueError(f"{node.name} has no value")
            self._known[node] = value
        return self._known[node]

    def _given(self, value: Any) -> Any:
        """Returns an argument, on the host."""
        import torch

        if isinstance(value, torch.fx.Node):
            return self.of(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value
