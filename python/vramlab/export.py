"""Exports a module of PyTorch to a file that the program reads."""

from __future__ import annotations

import copy
import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

from ._binary import VramlabError
from ._caches import know_caches
from ._ctc import traced_ctc, with_ctc
from ._evaluation import evaluation
from ._lives import followed
from ._masks import as_in_training
from ._recorded import recorded

# Entries of the archive that the program reads beside the graph, and the version of their format.
_ENTRY = "vramlab.json"
_EVALUATION = "vramlab-evaluation.json"
_VERSION = 1
# End of a slice that has no end.
_END = 2**63 - 1

# A program, and the values that outlive their last use.
Traced = tuple[Any, list[list[str]]]


def export(model: Any, *args: Any, path: Union[str, os.PathLike[str]], with_values: bool = False, **kwargs: Any) -> Path:
    """Exports ``model``, called as ``model(*args, **kwargs)``, to ``path``, with the batch open; returns the path.

    The first dimension of the first tensor is the batch, and so is that of every other tensor of the same first size. It must be at
    least 2. Without ``with_values`` the file has no weights: it can be predicted and fitted, not trained. It says when Python drops
    each value, which is later than its last use where a name still holds it. Where the module computes otherwise under ``eval()``, as
    dropout and batch norm do, the file has that program, too: ``predict --eval-every`` takes it.

    The masks of a network of transformers are those of a training with the example: none where it hides nothing.

    A module that ``torch.export`` cannot follow, because its code asks for values, is called once, and what it did is the program: its
    sizes are fixed, the batch among them. Raises :class:`VramlabError` where that fails, too.
    """
    import torch

    first = next((value for value in [*args, *kwargs.values()] if isinstance(value, torch.Tensor) and value.dim()), None)
    size = first.shape[0] if first is not None else 0
    if size < 2:
        raise VramlabError("export: the example needs a batch of at least 2, so that PyTorch leaves it open")

    def exported(batch: Any) -> Traced:
        def dims(value: Any) -> Optional[Mapping[int, Any]]:
            is_batched = isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == size
            return {0: batch} if is_batched else None

        shapes = (tuple(map(dims, args)), {name: dims(value) for name, value in kwargs.items()})
        dynamic = _by_name(model, args, shapes[0]) | shapes[1] if kwargs else shapes[0]
        return _exported(model, args, kwargs, dynamic, with_values)

    def traced() -> Traced:
        try:
            return exported(torch.export.Dim("batch"))
        except Exception as error:
            # The code asks for the size of the batch. PyTorch then writes into the file for which batches its answer holds.
            if "Constraints violated (batch)" not in str(error):
                raise
            return exported(torch.export.Dim.AUTO)

    def called() -> Traced:
        return recorded(model, args, kwargs)

    know_caches()
    beside: dict[str, Any] = {"version": _VERSION, "tied": _tied(model)}
    way = traced
    try:
        program, beside["dies_after"] = traced()
    except Exception as error:
        way = called
        try:
            program, beside["dies_after"] = called()
            beside["recorded"] = True
        except Exception:
            raise VramlabError(f"export: torch.export cannot export {type(model).__name__}: {error}") from error
    entries = {_ENTRY: beside}
    evaluated = evaluation(model, _graphs(program), way)
    if evaluated is not None:
        entries[_EVALUATION] = {"version": _VERSION, **evaluated}
    # Under another name first: a file that is there already is replaced whole, or stays. PyTorch asks for the ending.
    written = Path(f"{os.fspath(path)}.part.pt2")
    try:
        torch.export.save(program, os.fspath(written), extra_files={name: json.dumps(entry) for name, entry in entries.items()})
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
    return Path(path)


def _exported(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any, with_values: bool) -> Traced:
    """Returns the program of the module without values, or of the module itself if that fails; and values that outlive their last use."""
    import torch

    example = torch.utils._pytree.tree_leaves((args, dict(kwargs)))

    def traced(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
        is_changed = False
        try:
            with as_in_training(example) as is_changed:
                return followed_trace(module, args, kwargs)
        except Exception:
            # A question without an answer: what transformers does while it is traced is near.
            if not is_changed:
                raise
        return followed_trace(module, args, kwargs)

    def followed_trace(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
        with traced_ctc(), followed() as lives:
            program = torch.export.export(module, args, dict(kwargs), dynamic_shapes=dynamic, strict=False)
        _without_whole_slices(program)
        _with_numbers(program)
        _with_grouped_products(program)
        dies_after = lives.after_their_last_use(program)
        # After the lifetimes, which know values by the operators that were traced.
        with_ctc(_graphs(program))
        return program, dies_after

    def moved(value: Any) -> Any:
        return value.to("meta") if isinstance(value, torch.Tensor) else value

    if with_values:
        return traced(model, args, kwargs)
    try:
        with torch.device("meta"):
            without = _without_values(model)
            return traced(without, tuple(map(moved, args)), {name: moved(value) for name, value in kwargs.items()})
    except Exception:
        return traced(model, args, kwargs)


def _without_whole_slices(program: Any) -> None:
    """Removes slices of a whole axis. Indexing (`x[:, 0]`) makes them on the device `meta`, and does not on a GPU or on the CPU."""
    import torch

    for graph in _graphs(program):
        for node in list(graph.nodes):
            is_slice = node.op == "call_function" and node.target is torch.ops.aten.slice.Tensor and not node.kwargs
            # A slice without an end has the greatest number as its end.
            if is_slice and node.args[2:] == (0, _END) and not any(user.op == "output" for user in node.users):
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)


def _with_numbers(program: Any) -> None:
    """Writes a number (`x[:, 0] = 2`) as a GPU does, without a tensor. Traced, there is one: new on `meta`, a constant on the CPU."""
    import torch

    aten = torch.ops.aten
    for graph in _graphs(program):
        for node in list(graph.nodes):
            if node.op != "call_function" or node.target not in (aten.copy_.default, aten.fill_.Tensor):
                continue
            chain = [node.args[1]]
            while chain[-1].op == "call_function" and chain[-1].target in (aten.expand.default, aten.view.default):
                chain.append(chain[-1].args[0])
            number = _number(program, chain[-1])
            if number is None or any(len(made.users) > 1 for made in chain):
                continue
            # The name stays: lifetimes refer to it.
            node.target, node.args = aten.fill_.Scalar, (node.args[0], number)
            for made in chain:
                graph.erase_node(made)


def _with_grouped_products(program: Any) -> None:
    """Multiplies the experts of transformers with PyTorch's own operator, as a GPU does from torch 2.9 on.

    Traced, they have one that stands in for it.
    """
    import torch

    own = getattr(torch.ops.aten, "_grouped_mm", None)
    if own is None:
        return
    for graph in _graphs(program):
        for node in graph.nodes:
            if node.op == "call_function" and str(node.target) == "transformers.grouped_mm_fallback.default":
                # The name stays: lifetimes refer to it.
                node.target = own.default


def _number(program: Any, node: Any) -> Any:
    """Returns the number that a node makes a tensor of, or None."""
    import torch

    if node.op != "call_function":
        return None
    if node.target is torch.ops.aten.scalar_tensor.default:
        return node.args[0]
    if node.target is torch.ops.aten.lift_fresh_copy.default:
        constant = program.graph_signature.inputs_to_lifted_tensor_constants.get(node.args[0].name)
        value = program.constants.get(constant)
        # A larger constant is copied to the GPU.
        if isinstance(value, torch.Tensor) and value.dim() == 0 and not value.is_meta:
            return value.item()
    return None


def _graphs(program: Any) -> list[Any]:
    """Returns the graphs of a program, with those of its regions."""
    return [module.graph for module in program.graph_module.modules() if hasattr(module, "graph")]


def _without_values(model: Any) -> Any:
    """Returns a copy of the module whose parameters and buffers have sizes and types but no values."""
    import torch

    memo: dict[int, Any] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        there = torch.empty_like(tensor, device="meta")
        if isinstance(tensor, torch.nn.Parameter):
            there = torch.nn.Parameter(there, tensor.requires_grad)
        memo[id(tensor)] = there
    return copy.deepcopy(model, memo)


def _tied(model: Any) -> list[list[str]]:
    """Returns the groups of names that share one parameter."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def _by_name(model: Any, args: tuple[Any, ...], shapes: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the shapes of positional arguments by the names of ``forward``."""
    names = list(inspect.signature(model.forward).parameters)[: len(args)]
    return dict(zip(names, shapes))
