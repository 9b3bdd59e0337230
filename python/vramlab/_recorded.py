"""The operators of one call of a module, with fixed sizes: for modules whose code asks for values, which `torch.export` cannot follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ._ctc import traced_ctc, with_ctc
from ._lives import followed


def recorded(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, list[list[str]]]:
    """Returns the program of one call, and the values that live on after their last use.

    The module computes once, on its own device. Its code gets the actual values that it asks for, and they become part of the program.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    # The call writes into copies of the buffers, so that the module's own stay as they are.
    state = {name: value.detach().clone() for name, value in model.named_buffers()} | dict(model.named_parameters())

    def call(state: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return torch.func.functional_call(model, dict(state), args, dict(kwargs))

    traced = make_fx(call, tracing_mode="real", pre_dispatch=True, _error_on_data_dependent_ops=False, record_stack_traces=True)
    with traced_ctc(), _module_stacks(model) as stack, followed(stack) as lives:
        graph = traced(state, args, dict(kwargs))
    for node in reversed(graph.graph.nodes):
        # A read of a value is not needed any more after the call.
        if node.target is torch.ops.aten.item.default and not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
    program = _exported(model, graph, list(state), args, kwargs)
    dies_after = lives.after_their_last_use(program, _same(graph.graph, program.graph))
    with_ctc([module.graph for module in program.graph_module.modules() if hasattr(module, "graph")])
    return program, dies_after


def _exported(model: Any, graph: Any, names: list[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Exports the graph as the module's forward; the module's tensors keep their names."""
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
    """Maps the names of a graph's values to those in the graph made from it, which lacks unused values and checks more types."""
    names: dict[str, str] = {}
    rest = iter(_operators(before))
    for node in _operators(after):
        twin = next((twin for twin in rest if twin.target == node.target), None)
        if twin is None:
            break
        names[twin.name] = node.name
    return names


def _operators(graph: Any) -> list[Any]:
    import torch

    check = torch.ops.aten._assert_tensor_metadata.default
    return [node for node in graph.nodes if node.op == "call_function" and node.target is not check]


@contextmanager
def _module_stacks(model: Any) -> Iterator[list[tuple[str, tuple[str, str]]]]:
    """Yields the modules being called, outermost first, each as key, path and class, as PyTorch writes them beside a node.

    The key of a second call of a module has a number, so that it is not taken for a part of the first one.
    """
    stack: list[tuple[str, tuple[str, str]]] = []
    calls: Counter[str] = Counter()
    hooks = []

    def entered(path: str) -> Any:
        def enter(module: Any, _: Any) -> None:
            again = f"@{calls[path]}" if calls[path] else ""
            calls[path] += 1
            stack.append((f"L['self'].{path}{again}", (path, f"{type(module).__module__}.{type(module).__qualname__}")))

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
