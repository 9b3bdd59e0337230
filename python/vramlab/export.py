"""Exports a module of PyTorch to a file that the program reads."""

from __future__ import annotations

import copy
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
from ._objects import know, known_results
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
    """Exports ``model``, called as ``model(*args, **kwargs)``, to ``path``, with batch and length open; returns the path.

    The first dimension of the first tensor is the batch, and so is that of every other tensor of the same first size. It must be at
    least 2. The second size of the first whole numbers ``[batch, length]`` is the length, as that of others of the same sizes. Where
    the network's code fixes a size or bounds it, the file says so. Tensors may lie in dictionaries and in objects.

    Without ``with_values`` the file has no weights: it can be predicted and fitted, not trained. It says when Python drops each value,
    which is later than its last use where a name still holds it. Where the module computes otherwise under ``eval()``, as dropout and
    batch norm do, the file has that program, too: ``predict --eval-every`` takes it.

    The masks of a network of transformers are those of a training with the example: none where it hides nothing.

    A module that ``torch.export`` cannot follow, because its code asks for values, is called once, and what it did is the program: its
    sizes are fixed, the batch among them. Raises :class:`VramlabError` where that fails, too.
    """
    import torch

    know_caches()
    know((args, kwargs))
    size, length = _sizes(args, kwargs)
    if size < 2:
        raise VramlabError("export: the example needs a batch of at least 2, so that PyTorch leaves it open")

    def exported(batch: Any, sequence: Any) -> Traced:
        return _exported(model, args, kwargs, _open_sizes(model, args, kwargs, (size, batch), (length, sequence)), with_values)

    def traced() -> Traced:
        batch, automatic = torch.export.Dim("batch"), torch.export.Dim.AUTO
        try:
            return exported(batch, automatic)
        except Exception as error:
            # The code asks for the size of the batch. PyTorch then writes into the file for which batches its answer holds.
            if "Constraints violated (batch)" in str(error):
                return exported(automatic, automatic)
            # Only at one length it may be followed. What fails again is what the user learns.
            if length is None:
                raise
            return exported(batch, None)

    def called() -> Traced:
        return recorded(model, args, kwargs)

    beside: dict[str, Any] = {"version": _VERSION, "tied": _tied(model)}
    moved_before = _moved_before(model)
    if moved_before:
        beside["moved_before"] = moved_before
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


def _sizes(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[int, Optional[int]]:
    """Returns the batch of an example, 0 if it has none, and its length, that of the first whole numbers `[batch, length]`."""
    import torch

    tensors = [leaf for leaf in torch.utils._pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    size = tensors[0].shape[0] if tensors else 0
    return size, next((leaf.shape[1] for leaf in tensors if _has_tokens(leaf, size)), None)


def _has_tokens(tensor: Any, batch: int) -> bool:
    """Tells whether a tensor has numbers or a truth for each token: `[batch, length]`."""
    import torch

    is_whole = not tensor.is_floating_point() and not tensor.is_complex()
    return isinstance(tensor, torch.Tensor) and tensor.dim() == 2 and tensor.shape[0] == batch and tensor.shape[1] > 1 and is_whole


def _open_sizes(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], batch: tuple[int, Any], sequence: tuple[Optional[int], Any]
) -> Any:
    """Returns which sizes of an example are open. Each pair is a size and what PyTorch is told of it; ``None`` fixes it."""
    import torch

    (size, open_batch), (length, open_length) = batch, sequence
    shapes = torch.export.ShapesCollection()
    for leaf in torch.utils._pytree.tree_leaves((args, dict(kwargs))):
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == size:
            is_long = open_length is not None and _has_tokens(leaf, size) and leaf.shape[1] == length
            shapes[leaf] = {0: open_batch, 1: open_length} if is_long else {0: open_batch}
    return shapes.dynamic_shapes(model, args, dict(kwargs))


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
        with traced_ctc(), known_results(module), followed() as lives:
            program = torch.export.export(module, args, dict(kwargs), dynamic_shapes=dynamic, strict=False)
        _without_preparations(program)
        _without_whole_slices(program)
        _with_numbers(program)
        _with_grouped_products(program)
        _with_first_names(program)
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
            there_args, there_kwargs = torch.utils._pytree.tree_map(moved, (args, dict(kwargs)))
            return traced(without, there_args, there_kwargs)
    except Exception:
        return traced(model, args, kwargs)


def _without_preparations(program: Any) -> None:
    """Removes calls by which PyTorch prepares ``vmap``: they compute nothing, and PyTorch does not write them into a file."""
    import torch

    operators = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    for graph in _graphs(program):
        for node in list(graph.nodes):
            is_call = node.op == "call_function" and not node.users and not isinstance(node.target, operators)
            if is_call and getattr(node.target, "__module__", "") == "torch._functorch.predispatch":
                graph.erase_node(node)


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


def _with_first_names(program: Any) -> None:
    """Calls an operator by its first name where PyTorch has several for it and traces the one that the code uses."""
    import torch

    for graph in _graphs(program):
        for node in graph.nodes:
            if node.op == "call_function" and str(node.target) == "aten.concatenate.default":
                # The name stays: lifetimes refer to it.
                node.target = torch.ops.aten.cat.default


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


def _moved_before(model: Any) -> list[list[str]]:
    """Returns the modules that have buffers alone, each with the module before which ``model.to`` moves it. A file names buffers after all
    parameters. A layer's number is ``*``, since all layers are alike in this."""
    found: dict[tuple[str, str], None] = {}
    for path, module in model.named_modules():
        children = [(name, child) for name, child in module.named_children() if not name.isdigit()]
        following = ""
        for name, child in reversed(children):
            if next(child.parameters(), None) is not None:
                following = name
            elif following and next(child.buffers(), None) is not None:
                parts = ["*" if part.isdigit() else part for part in path.split(".") if part]
                found[".".join([*parts, name]), ".".join([*parts, following])] = None
                following = name
    return [[module, sibling] for module, sibling in found]


def _tied(model: Any) -> list[list[str]]:
    """Returns the groups of names that share one parameter."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]
