"""Watches a real training: its memory step by step; if it runs out, the snapshot is written and read."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Optional, Union

from ._answers import Prediction
from ._binary import VramlabError
from ._predict import explain, show_snapshot
from ._watching.history import ENTRIES
from ._watching.meter import Meter
from ._watching.tell import Teller, runtime_folder

# A function that takes figures by name, and the step.
Log = Callable[[dict[str, Any], int], None]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class watch(contextlib.ContextDecorator):
    """``with vramlab.watch():`` around a training, or ``@vramlab.watch()`` above its function.

    After each step of an optimizer PyTorch's counters are read; :meth:`figures` has them by name, in bytes, and ``vramlab watch`` in
    another terminal shows them. ``log`` is given the figures and the step, every ``log_every`` steps and at the end (:mod:`vramlab.loggers`
    has some for TensorBoard, W&B and MLflow). ``predicted``, an answer of :func:`vramlab.predict`, stands beside them.

    PyTorch records allocations with their lines meanwhile, the last ``max_entries`` of them: in every step if that takes less than 0.2 % of
    it, else in the first three, in two now and then, and while memory grows towards the card's end. Blocks that other steps allocate have
    no line. With ``max_entries=0`` nothing is recorded. On ``torch.cuda.OutOfMemoryError`` the snapshot of that moment is written to
    ``path`` (of a rank, to ``path.RANK``) and the answer printed: why memory ran out, and which lines held it. The exception goes on.
    Without PyTorch, or without a card, there is no effect, and a line says so. ``tell`` is given what is to be printed.
    """

    def __init__(
        self,
        path: Union[str, os.PathLike[str]] = "vramlab-oom.pickle",
        *,
        max_entries: int = ENTRIES,
        tell: Callable[[str], None] = _tell,
        log: Optional[Log] = None,
        log_every: int = 10,
        predicted: Optional[Prediction] = None,
    ) -> None:
        rank = os.environ.get("RANK")
        self.path = Path(f"{os.fspath(path)}.{rank}" if rank else path)
        self._max_entries = max_entries
        self._tell = tell
        self._log = log
        self._log_every = log_every
        self._predicted = predicted
        self._meter: Optional[Meter] = None
        self._teller: Optional[Teller] = None

    def __enter__(self) -> watch:
        self._meter = self._begun()
        return self

    def figures(self) -> dict[str, Any]:
        """The figures at the end of the last step: numbers by name, in bytes; empty without a card."""
        return self._meter.figures() if self._meter else {}

    def step(self) -> None:
        """Ends a step; to be called by a loop whose optimizer is not one of ``torch.optim``."""
        if self._meter and self._meter.began:
            self._meter.step()

    def _begun(self) -> Optional[Meter]:
        try:
            import torch
        except ImportError:
            self._tell("vramlab.watch: no effect: PyTorch is not installed")
            return None
        try:
            if not torch.cuda.is_available():
                self._tell("vramlab.watch: no effect: PyTorch sees no CUDA device")
                return None
            meter = Meter(torch, entries=self._max_entries, log=self._log, log_every=self._log_every)
            if self._predicted is not None:
                meter.predicted = {"peak": self._predicted.peak, "peak_reserved": self._predicted.reserved}
            meter.when_out = lambda: meter.history.write(self._held())
            meter.install()
        except Exception as error:
            # The training continues without a watch.
            self._tell(f"vramlab.watch: no effect: PyTorch does not record: {error}")
            return None
        folder = runtime_folder()
        if folder is not None:
            # Nobody may be able to see it, and the training goes on.
            with contextlib.suppress(OSError):
                self._teller = Teller(meter, folder, self._held(), pictures=False)
        return meter

    def _held(self) -> Path:
        """Where the snapshot of the moment lies until the exception leaves the block: a script may go on with less."""
        return self.path.with_name(f".{self.path.name}.{os.getpid()}.oom")

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        (meter, self._meter), (teller, self._teller) = (self._meter, None), (self._teller, None)
        if meter is None:
            return
        # If this fails, the script still sees its own exception.
        with contextlib.suppress(Exception):
            cause = out_of_memory(error, meter.torch)
            if cause is not None:
                self._answer(meter, cause)
        with contextlib.suppress(OSError):
            self._held().unlink()
        with contextlib.suppress(Exception):
            meter.end()
        meter.remove()
        if teller is not None:
            teller.remove()

    def _answer(self, meter: Meter, cause: BaseException) -> None:
        try:
            if self._held().exists():
                self._held().replace(self.path)
            else:
                meter.history.write(self.path)
        except Exception as error:
            self._tell(f"vramlab.watch: {self.path} could not be written: {error}")
            self._try(lambda: str(explain(cause)))
            return
        failed = meter.out_of_memory
        if failed is not None and not failed["recorded"]:
            asked = f", {failed['line']} asked for it" if failed["line"] else ""
            self._tell(f"vramlab.watch: step {failed['step']} was not recorded{asked}: only what other steps left has lines.")
            self._try(lambda: str(explain(cause)))
        else:
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
