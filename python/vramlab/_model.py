"""Flags with which the program gets a network: a name of the program's list, a file, or a module that is written to a file."""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ._binary import VramlabError
from .export import export

# PyTorch's allocator rounds a tensor up to a multiple of these bytes.
_ROUNDING = 512

# Types of parameters that a configuration can name.
_TYPES = {"torch.float32", "torch.float16", "torch.bfloat16"}

# Ends of the names of files: `model.pt2`, and not `llama-3.2-1b`.
_SUFFIX = re.compile(r"\.[A-Za-z]\w*$")

# Flags of the types in 16 bits.
_HALVES = {"bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True)
class Network:
    """The flags that name a network, and the bytes with which an answer about it must agree."""

    flags: dict[str, Any]
    #: Bytes of the module's parameters and buffers as the allocator rounds them; ``None`` if no configuration describes the module.
    held_bytes: Optional[int] = None
    notes: list[str] = field(default_factory=list)
    #: A name or a path, if the network is one: the program tells which.
    word: Optional[str] = None
    #: Arguments of a script.
    script: list[str] = field(default_factory=list)

    def in_flags(self) -> dict[str, Any]:
        """The flags, with a name or a path among them as well."""
        if self.word is None:
            return self.flags
        is_path = os.path.exists(self.word) or os.path.basename(self.word) != self.word or _SUFFIX.search(self.word)
        return {"model_file" if is_path else "model": self.word}

    def agrees(self, categories: Mapping[str, int]) -> bool:
        """True if the predicted network has the bytes of the module's parameters and buffers, or if they are not known."""
        return self.held_bytes in (None, categories.get("parameter", 0) + categories.get("buffer", 0))


def network(model: Any, args: tuple[Any, ...], inputs: Optional[Mapping[str, Any]], folder: Path) -> Network:
    """Returns the flags for a network; a module is written into ``folder``.

    Raises :class:`VramlabError` if that fails.
    """
    if isinstance(model, (str, os.PathLike)):
        if inputs or not all(isinstance(word, str) for word in args):
            raise VramlabError("example inputs belong to a module; a file or a name has its own")
        return Network({}, word=os.fspath(model), script=list(args))
    if args or inputs:
        path = export(model, *args, path=folder / "model.pt2", **(inputs or {}))
        return Network({"model_file": path})
    if is_transformers(model):
        return _configured(model, folder)
    raise VramlabError(f"{type(model).__name__}: an example of its inputs is needed: predict(model, torch.randn(…), batch=…)")


def is_transformers(model: Any) -> bool:
    """True if the module is a network of transformers itself, not wrapped in another module."""
    return type(model).__module__.startswith("transformers.") and hasattr(model, "config")


def _configured(model: Any, folder: Path) -> Network:
    """A network of transformers by its configuration, as far as that describes the module."""
    name = type(model).__name__
    parameters = list(model.parameters())
    if not all(parameter.requires_grad for parameter in parameters):
        raise VramlabError(f"{name}: some parameters are not trained, which its configuration does not say: give example inputs")
    if getattr(model, "hf_device_map", None) or getattr(model, "is_quantized", False):
        raise VramlabError(f"{name}: a quantized or spread network is not what its configuration describes")
    types = {str(parameter.dtype) for parameter in parameters}
    if len(types) != 1 or not types <= _TYPES:
        raise VramlabError(f"{name}: vramlab does not support parameters of {', '.join(sorted(types))} together; rehearse the script")
    config = dict(json.loads(model.config.to_json_string(use_diff=False)))
    config["architectures"] = [name]
    # The module's present type, whatever type it was loaded in. A Trainer's own bf16 takes precedence.
    dtype = types.pop().removeprefix("torch.")
    config["dtype"] = config["torch_dtype"] = dtype
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    release = importlib.import_module("transformers").__version__
    flags: dict[str, Any] = {"model_file": path, "transformers": release}
    if release.startswith("4.") and dtype in _HALVES:
        # A file is loaded in float32 there; the module is not loaded any more.
        flags["precision"] = _HALVES[dtype]
    # The second name is that of transformers 5 and later.
    checkpointing = "is_gradient_checkpointing" if not hasattr(model, "is_activation_checkpointing") else "is_activation_checkpointing"
    if getattr(model, checkpointing, False):
        flags["checkpoint"] = "blocks"
    attention = getattr(model.config, "_attn_implementation", None)
    if attention is not None:
        flags["attention"] = attention
    return Network(flags, _held_bytes(model))


def _held_bytes(model: Any) -> int:
    """Returns the bytes of parameters and buffers, each tensor once and rounded up as the allocator does."""
    tensors = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors.values()]
    return sum((size + _ROUNDING - 1) // _ROUNDING * _ROUNDING for size in sizes)
