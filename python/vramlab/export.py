"""A module of PyTorch as a file that the program reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

from ._binary import VramlabError


def export(model: Any, *args: Any, path: Union[str, os.PathLike[str]], **kwargs: Any) -> Path:
    """Exports ``model``, called as ``model(*args, **kwargs)``, to ``path``, with the batch open; returns the path.

    The first dimension of the first tensor is the batch, and so is that of every other tensor of the same first size. It must be at
    least 2. Parameters keep their device; their values are written, too. Raises :class:`VramlabError` where PyTorch cannot export
    the module.
    """
    import torch

    first = next((value for value in [*args, *kwargs.values()] if isinstance(value, torch.Tensor) and value.dim()), None)
    size = first.shape[0] if first is not None else 0
    if size < 2:
        raise VramlabError("export: the example needs a batch of at least 2, so that PyTorch leaves it open")
    batch = torch.export.Dim("batch")

    def dims(value: Any) -> Optional[Mapping[int, Any]]:
        is_batched = isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == size
        return {0: batch} if is_batched else None

    shapes = (tuple(map(dims, args)), {name: dims(value) for name, value in kwargs.items()})
    dynamic = _by_name(model, args, shapes[0]) | shapes[1] if kwargs else shapes[0]
    try:
        program = torch.export.export(model, args, dict(kwargs), dynamic_shapes=dynamic, strict=False)
        torch.export.save(program, os.fspath(path))
    except Exception as error:
        raise VramlabError(f"export: torch.export cannot export {type(model).__name__}: {error}") from error
    return Path(path)


def _by_name(model: Any, args: tuple[Any, ...], shapes: tuple[Any, ...]) -> dict[str, Any]:
    """Positional arguments under the names that ``forward`` gives them."""
    import inspect

    names = list(inspect.signature(model.forward).parameters)[: len(args)]
    return dict(zip(names, shapes))
