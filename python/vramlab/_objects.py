"""Objects among arguments and results, as parts that `torch.export` knows: a script passes a batch of its own class, or keeps one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


def know(value: Any) -> None:
    """Tells PyTorch what the objects in ``value`` consist of: the attributes, or the entries of a mapping, that hold tensors."""
    import torch

    known = torch.utils._pytree.SUPPORTED_NODES
    kind = type(value)
    if isinstance(value, torch.Tensor) or value is None or isinstance(value, (bool, int, float, str)):
        return
    if kind not in known and not _is_named_tuple(value):
        names = _names(value)
        if not names:
            return
        _register(kind, isinstance(value, Mapping))
    for part in _parts(value):
        know(part)


def holds_tensors(value: Any, depth: int = 4) -> bool:
    """Tells whether there is a tensor in ``value``, at most so many objects deep."""
    import torch

    if isinstance(value, torch.Tensor):
        return True
    if depth == 0 or value is None or isinstance(value, (bool, int, float, str, bytes, type, torch.nn.Module)):
        return False
    return any(holds_tensors(part, depth - 1) for part in _parts(value))


@contextlib.contextmanager
def known_results(model: Any) -> Iterator[None]:
    """Knows the objects that the module returns while it is traced inside the block."""

    def returned(module: Any, args: Any, result: Any) -> None:
        know(result)

    hook = model.register_forward_hook(returned)
    try:
        yield
    finally:
        hook.remove()


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _parts(value: Any) -> list[Any]:
    """Returns what an object consists of."""
    import torch

    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    node = torch.utils._pytree.SUPPORTED_NODES.get(type(value))
    if node is not None:
        return list(node.flatten_fn(value)[0])
    return list(getattr(value, "__dict__", {}).values())


def _names(value: Any) -> list[Any]:
    """Returns the names of the parts that hold tensors, in the object's own order."""
    parts = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    return [name for name, part in parts.items() if holds_tensors(part)]


def _register(kind: Any, is_mapping: bool) -> None:
    import torch

    pytree = torch.utils._pytree

    def parts(value: Any) -> tuple[list[Any], Any]:
        names = _names(value)
        given = value if is_mapping else value.__dict__
        return [given[name] for name in names], names

    def with_keys(value: Any) -> tuple[list[Any], Any]:
        values, names = parts(value)
        key = pytree.MappingKey if is_mapping else pytree.GetAttrKey
        return [(key(name), part) for name, part in zip(names, values)], names

    def whole(values: Any, names: Any) -> Any:
        # What holds no tensor is not part of a trace: an object is made again from an example of its class.
        made = kind.__new__(kind)
        if is_mapping and not isinstance(made, dict):
            # As those of UserDict, which keep their entries there.
            made.__dict__["data"] = {}
        for name, part in zip(names, values):
            if isinstance(made, dict):
                dict.__setitem__(made, name, part)
            elif is_mapping:
                made.data[name] = part
            else:
                object.__setattr__(made, name, part)
        return made

    pytree.register_pytree_node(
        kind,
        parts,
        whole,
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
        to_dumpable_context=list,
        from_dumpable_context=list,
        flatten_with_keys_fn=with_keys,
    )
