"""The operators of one call of a module, with fixed sizes: for modules whose code asks for values, which `torch.export` cannot follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ._lives import followed


def recorded(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, list[list[str]]]:
    """The program of one call, and which values live on after their last use.

    The module computes once, on its own device; what it asks of values is answered, and the answer is part of the program.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    # What the call writes into buffers is not the module's.
    state = {name: value.detach().clone() for name, value in model.named_buffers()} | dict(model.named_parameters())

    def call(state: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return torch.func.functional_call(model, dict(state), args, dict(kwargs))

    traced = make_fx(call, tracing_mode="real", pre_dispatch=True, _error_on_data_dependent_ops=False, record_stack_traces=True)
    with _module_stacks(model) as stack, followed(stack) as lives:
        graph = traced(state, args, dict(kwargs))
    for node in reversed(graph.graph.nodes):
        # What was asked of values has been answered.
        if node.target is torch.ops.aten.item.default and not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
    program = _exported(model, graph, list(state), args, kwargs)
    return program, lives.after_their_last_use(program, _same(graph.graph, program.graph))


def _exported(model: Any, graph: Any, names: list[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The graph as the forward of the module, whose tensors keep their names."""
    import torch

    def forward(*args: Any, **kwargs: Any) -> Any:
        tensors = dict(model.named_parameters()) | dict(model.named_buffers())
        flat = [tensors[name] for name in names], args, kwargs
        values = torch.utils._pytree.tree_leaves(flat)
        interpreter = torch.fx.Interpreter(graph)
        with torch.fx.traceback.preserve_node_meta():
            return interpreter.run(*values, enable_io_processing=False)

    model.forward = forward
    try:
        return torch.export.export(model, args, dict(kwargs), strict=False)
    finally:
        del model.forward


def _same(before: Any, after: Any) -> dict[str, str]:
    """Names of the values of a graph in the one that was made of it, which lacks what nothing uses."""
    names: dict[str, str] = {}
    rest = iter([node for node in before.nodes if node.op == "call_function"])
    for node in after.nodes:
        if node.op == "call_function":
            twin = next((twin for twin in rest if twin.target == node.target), None)
            if twin is None:
                break
            names[twin.name] = node.name
    return names


@contextmanager
def _module_stacks(model: Any) -> Iterator[list[tuple[str, tuple[str, str]]]]:
    """The modules that are being called, outermost first: key, path and class, as PyTorch writes them beside a node."""
    stack: list[tuple[str, tuple[str, str]]] = []
    hooks = []

    def entered(path: str) -> Any:
        def enter(module: Any, _: Any) -> None:
            stack.append((f"L['self'].{path}", (path, f"{type(module).__module__}.{type(module).__qualname__}")))

        return enter

    def left(*_: Any) -> None:
        stack.pop()

    for path, module in model.named_modules():
        hooks += [module.register_forward_pre_hook(entered(path)), module.register_forward_hook(left, always_call=True)]
    try:
        yield stack
    finally:
        for hook in hooks:
            hook.remove()
