"""Runs at the start of every Python under ``vramlab watch``: waits for ``torch``, and tells the program about the training."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any


class _Loader:
    """Wraps torch's loader, and calls a function on the module after it was loaded."""

    def __init__(self, loader: Any, after: Callable[[Any], None]) -> None:
        self._loader = loader
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # The module keeps its own loader, for code that asks for it later.
        module.__loader__ = self._loader
        module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        # The training goes on without a watch.
        with contextlib.suppress(Exception):
            self._after(module)


class _Finder:
    """Comes before the other finders, and lets them find torch."""

    def __init__(self, after: Callable[[Any], None]) -> None:
        self._after = after
        self._busy = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch" or self._busy:
            return None
        self._busy = True
        try:
            others = (finder for finder in list(sys.meta_path) if finder is not self and hasattr(finder, "find_spec"))
            found = (finder.find_spec(name, path, target) for finder in others)
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            self._busy = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            loader: Any = _Loader(spec.loader, self._after)
            spec.loader = loader
        return spec


def users_own(here: str) -> None:
    """Runs the ``sitecustomize`` that would have run without this one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def run(here: str) -> None:
    """Starts the watch. ``here`` is the folder of the ``sitecustomize`` that does so, with the folder ``told`` in it."""
    told = Path(here, "told")

    def install(torch: Any) -> None:
        from .meter import Meter
        from .tell import Teller

        meter, pid = Meter(torch), os.getpid()
        teller = Teller(meter, told, told / f"{pid}.out.pickle", pictures=True)
        meter.install()

        def end() -> None:
            # Not in a process that was forked from this one.
            if os.getpid() == pid:
                with contextlib.suppress(Exception):
                    meter.problem = meter.problem or _why_not(meter)
                    teller.end()

        atexit.register(end)

    with contextlib.suppress(OSError):
        (told / f"{os.getpid()}.python").touch()
    sys.meta_path.insert(0, _Finder(install))


def _why_not(meter: Any) -> Any:
    """Why there is nothing to tell; ``None`` if there is."""
    torch = meter.torch
    if meter.began:
        return None if meter.steps else "no optimizer of torch.optim made a step"
    if torch.version.cuda is None and torch.version.hip is None:
        return "this PyTorch is built without CUDA"
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device"
    return "the training used no CUDA device"
