"""Watches a real training: if memory runs out, the snapshot is written and read."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Optional, Union

from ._binary import VramlabError
from ._predict import explain, show_snapshot

# Number of events that PyTorch keeps in main memory.
_ENTRIES = 100_000


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class watch(contextlib.ContextDecorator):
    """``with vramlab.watch():`` around a training, or ``@vramlab.watch()`` above its function.

    PyTorch records allocations with their lines meanwhile, the last ``max_entries`` of them. On ``torch.cuda.OutOfMemoryError`` the
    snapshot is written to ``path`` (of a rank, to ``path.RANK``) and the answer printed: why memory ran out, and which lines held it.
    The exception goes on. Without PyTorch, or without a card, there is no effect, and a line says so. ``tell`` is given what is to be
    printed.
    """

    def __init__(
        self,
        path: Union[str, os.PathLike[str]] = "vramlab-oom.pickle",
        *,
        max_entries: int = _ENTRIES,
        tell: Callable[[str], None] = _tell,
    ) -> None:
        rank = os.environ.get("RANK")
        self.path = Path(f"{os.fspath(path)}.{rank}" if rank else path)
        self._max_entries = max_entries
        self._tell = tell
        self._torch: Any = None

    def __enter__(self) -> watch:
        self._torch = self._begun()
        return self

    def _begun(self) -> Any:
        try:
            import torch
        except ImportError:
            self._tell("vramlab.watch: no effect: PyTorch is not installed")
            return None
        try:
            if torch.cuda.is_available():
                torch.cuda.memory._record_memory_history(max_entries=self._max_entries)
                return torch
            self._tell("vramlab.watch: no effect: PyTorch sees no CUDA device")
        except Exception as error:
            # The training continues without a watch.
            self._tell(f"vramlab.watch: no effect: PyTorch does not record: {error}")
        return None

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        torch, self._torch = self._torch, None
        if torch is None:
            return
        # If this fails, the script still sees its own exception.
        with contextlib.suppress(Exception):
            cause = out_of_memory(error, torch)
            if cause is not None:
                self._answer(torch, cause)
        with contextlib.suppress(Exception):
            torch.cuda.memory._record_memory_history(enabled=None)

    def _answer(self, torch: Any, cause: BaseException) -> None:
        try:
            torch.cuda.memory._dump_snapshot(os.fspath(self.path))
        except Exception as error:
            self._tell(f"vramlab.watch: {self.path} could not be written: {error}")
            self._try(lambda: str(explain(cause)))
            return
        self._try(lambda: str(show_snapshot(self.path)))
        self._tell(f"The snapshot: {self.path}; `vramlab snapshot show --help` says what else can be asked of it.")

    def _try(self, answer: Callable[[], str]) -> None:
        try:
            self._tell(answer())
        except (VramlabError, OSError) as error:
            self._tell(f"vramlab.watch: {error}")


def out_of_memory(error: Optional[BaseException], torch: Any) -> Optional[BaseException]:
    """Returns the out-of-memory error that an exception is, or that caused it."""
    seen: set[int] = set()
    kind: type[BaseException] = torch.cuda.OutOfMemoryError
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
