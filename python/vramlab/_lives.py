"""Lifetimes in Python of the values of a module's forward pass, observed while `torch.export` runs it.

A name keeps a value until the name is bound to another value or its function returns. An exported graph has only the last use of each.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional


class Lives:
    """The deaths of values, each with the last node of the graph at that moment."""

    def __init__(self) -> None:
        self._deaths: list[tuple[str, str, Any]] = []

    def follow(self, value: Any, node: Any) -> None:
        """Records the moment at which Python drops ``value``, which ``node`` of a graph stands for."""
        graph, name, target = node.graph, node.name, str(node.target)

        def died() -> None:
            last = next(iter(reversed(graph.nodes)), None)
            # A value that outlives the program belongs to the module or to its caller.
            if last is not None and last.op != "output":
                self._deaths.append((name, target, last))

        weakref.finalize(value, died)

    def after_their_last_use(self, program: Any, names: Optional[Mapping[str, str]] = None) -> list[list[str]]:
        """Returns the values that lived on after their last use, each with the value that was made last before its death.

        A node that runs a region (no_grad, autocast) has a graph inside, which names its own values. Where another graph has one of the two
        names, too, that of the region follows, empty for the program's own. ``names`` maps the names of the
        followed values to the names in the program, if they differ.
        """
        main = _Order(program.graph_module)
        graphs = [*main.regions, main]
        found: dict[tuple[str, str], list[str]] = {}
        for name, target, last in self._deaths:
            name = name if names is None else names.get(name, "")
            owned = ((graph, graph.own(name, target)) for graph in graphs)
            graph, value = next(((graph, value) for graph, value in owned if value), (None, None))
            after = graph.death(value, last, names) if graph and value else None
            if graph and value and after:
                # A value that is written in place has a node for each write, and all of these nodes die with it.
                is_one = sum(value in other.names or after in other.names for other in graphs) == 1
                found.setdefault((graph.region, value), [value, after] if is_one else [value, after, graph.region])
        return list(found.values())


class _Order:
    """The nodes of a graph in order, with their uses. ``region`` is the name of the region that it is inside of."""

    def __init__(self, module: Any, region: str = "") -> None:
        nodes = list(module.graph.nodes)
        # A node with several results has no name in the file, but they have.
        named = (node for node in nodes if node.op == "call_function" and not isinstance(node.meta.get("val"), (tuple, list)))
        self.region, self.names = region, {str(node.name) for node in named}
        self.regions: list[_Order] = []
        self._nodes = nodes
        self._places = {node.name: place for place, node in enumerate(nodes)}
        self._last_use = dict(self._places)
        # Names of the values that this graph makes, by the name when they were made and the operator.
        self._own = {(node.name, str(node.target)): str(node.name) for node in nodes if node.op == "call_function"}
        for place, node in enumerate(nodes):
            for given in node.all_input_nodes:
                self._last_use[given.name] = place
            inside = getattr(module, str(node.target), None) if node.op == "get_attr" else None
            if hasattr(inside, "graph"):
                self._enter(_Order(inside, str(node.target)), next(iter(node.users), node))
        self._given_back = [given for node in nodes if node.op == "output" for given in node.all_input_nodes]
        for given in self._given_back:
            self._own.pop((given.name, str(given.target)), None)

    def _enter(self, region: _Order, caller: Any) -> None:
        """Adds a region that ``caller`` runs. A value that dies in it dies here at the place of ``caller``; its results are values here."""
        self.regions += [region, *region.regions]
        self._places = {**dict.fromkeys(region._places, self._places[caller.name]), **self._places}
        for user in caller.users:
            if "getitem" in str(user.target) and user.args[1] < len(region._given_back):
                result = region._given_back[user.args[1]]
                self._own[result.name, str(result.target)] = str(user.name)

    def own(self, name: str, target: str) -> Optional[str]:
        """Returns the name of the value that this operator made under this name, if this graph makes it and does not return it."""
        return self._own.get((name, target))

    def death(self, name: str, last: Any, names: Optional[Mapping[str, str]]) -> Optional[str]:
        """Returns the file's value made last before ``name`` died, if that is after its last use. ``last`` was the last node then."""

        # Unused nodes were removed from the graph; the node before takes their place.
        def place_of(node: Any) -> int:
            return self._places.get(node.name if names is None else names.get(node.name, ""), -1)

        while place_of(last) < 0 and last.op != "root":
            last = last.prev
        place = place_of(last)
        while place > self._last_use[name]:
            value = _value(self._nodes[place])
            if value is not None:
                return value
            place -= 1
        return None


def _value(node: Any) -> Optional[str]:
    """Returns the name in the file of a node's result, of the first one if there are several; None if it has no name."""
    if node.op != "call_function" or node.meta.get("val") is None:
        return None
    if isinstance(node.meta["val"], (tuple, list)):
        parts = (user.name for user in node.users if "getitem" in str(user.target))
        return next(parts, None)
    return str(node.name)


@contextlib.contextmanager
def followed(modules: Sequence[tuple[str, tuple[str, str]]] = ()) -> Iterator[Lives]:
    """Follows the values that PyTorch traces inside the block. ``modules`` are those being called, if PyTorch does not record them.

    Autograd would keep its saved tensors alive for a backward pass that never comes, so a hook replaces each of them by None.
    """
    import torch
    from torch.fx.experimental import proxy_tensor

    lives, slot = Lives(), getattr(proxy_tensor, "set_proxy_slot", None)
    if slot is None:
        yield lives
        return

    def follow(value: Any, tracer: Any, proxy: Any) -> None:
        slot(value, tracer, proxy)
        node = getattr(getattr(proxy, "proxy", proxy), "node", None)
        if isinstance(value, torch.Tensor) and node is not None and node.op != "placeholder":
            lives.follow(value, node)
            if modules:
                node.meta.setdefault("nn_module_stack", dict(modules))

    proxy_tensor.set_proxy_slot = follow
    try:
        with torch.autograd.graph.saved_tensors_hooks(lambda value: None, lambda kept: kept):
            yield lives
    finally:
        proxy_tensor.set_proxy_slot = slot
