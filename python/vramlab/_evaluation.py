"""The program of a module under `eval()` and `no_grad()`, beside that of its training."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

# Arguments by which an operator is told that it trains, and the probability with which attention drops weights.
_TRAINS = ("train", "training")
_DROPPED = "dropout_p"
# Operators that draw numbers: Python leaves out what depends on them where it does not train.
_DRAWS = ("bernoulli", "aten.rand", "aten.uniform")
# Characters of PyTorch's message that are kept.
_MESSAGE = 400


def evaluation(model: Any, graphs: Sequence[Any], traced: Callable[[], tuple[Any, list[list[str]]]]) -> Optional[dict[str, Any]]:
    """Returns what the file says of the module under `eval()`: the program and its lifetimes, or why PyTorch has none.

    ``graphs`` are those of the training, and ``traced`` makes a program of the module as it is. None where the module does not train, or
    where no operator of the training computes otherwise: its program is that of an evaluation, too.
    """
    import torch

    if not model.training or not any(_trains(node) for graph in graphs for node in graph.nodes):
        return None
    with _evaluated(model), torch.no_grad():
        try:
            program, dies_after = traced()
            return {"program": _written(program), "dies_after": dies_after}
        except Exception as error:
            return {"problem": str(error)[:_MESSAGE]}


@contextlib.contextmanager
def _evaluated(model: Any) -> Iterator[None]:
    """Puts each module under `eval()`, and back to what it was."""
    trained = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in trained:
            module.training = True


def _trains(node: Any) -> bool:
    """Tells whether an operator computes otherwise under `eval()`."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return False
    if any(name in str(node.target) for name in _DRAWS):
        return True
    given = {**{argument.name: value for argument, value in zip(schema.arguments, node.args)}, **node.kwargs}
    dropped = given.get(_DROPPED)
    return any(given.get(name) is True for name in _TRAINS) or (isinstance(dropped, float) and dropped > 0)


def _written(program: Any) -> Any:
    """Returns a program as the archive of an export has it, without values."""
    import torch

    saved = io.BytesIO()
    torch.export.save(program, saved)
    with zipfile.ZipFile(saved) as archive:
        entry = next(name for name in archive.namelist() if name.endswith("models/model.json"))
        return json.loads(archive.read(entry))
