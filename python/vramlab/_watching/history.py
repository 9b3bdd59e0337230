"""PyTorch's own recording of allocations with their lines: of every step if that costs little, else of a few whole steps now and then."""

from __future__ import annotations

import contextlib
import math
import os
import time
from pathlib import Path
from typing import Any, Optional

# Events that PyTorch keeps in main memory: the last ones.
ENTRIES = 100_000
# Share of the time that the recording may take, on average.
_SHARE = 0.001
# Steps that are recorded whatever it takes: the first ones, in which what stays is allocated; now and then; when something happens.
FIRST, _NOW_AND_THEN, _LONG = 3, 2, 8
# Seconds that PyTorch takes for the two events of an allocation, and for beginning and ending a recording. Noting the stack of an
# allocation takes so many times as long as noting a shallow one. Measured with torch 2.11.0.
_EVENTS, _SWITCH, _STACKS = 2e-6, 1e-4, 3
# Time that writing a snapshot takes: at least, and for each event.
_WRITES, _WRITES_EACH = 0.1, 1.5e-5


class History:
    """The recording, with the lines of allocations.

    While it costs more than ``_SHARE`` of a step it is on in a few whole steps, and off as long as it takes to make up for them. PyTorch
    then drops the events, and keeps the lines of what is still allocated. With no ``entries`` nothing is recorded: a snapshot has the
    memory of its moment alone.
    """

    def __init__(self, torch: Any, entries: int = ENTRIES) -> None:
        self._torch = torch
        self._entries = entries
        self._capture: Optional[float] = None
        self._until: Optional[int] = FIRST
        self._again: Optional[int] = None
        self._spent = 0.0
        self._begun = 0
        self.is_on = False
        # Steps that were recorded whole, and the last of them.
        self.recorded = 0
        self.last = 0

    def begin(self) -> None:
        """Starts the recording: what is allocated before the first step has lines, too."""
        self._switch(True)

    def end(self) -> None:
        """Ends the recording."""
        self._switch(False)

    def _switch(self, on: bool) -> None:
        if self._entries <= 0 or on == self.is_on:
            return
        self.is_on = on
        record = self._torch.cuda.memory._record_memory_history
        if not on:
            record(enabled=None)
            return
        # Not "all": with lines of frees, those while an exception unwinds C++ lose the exception.
        how: dict[str, Any] = {"max_entries": self._entries, "context": "alloc", "stacks": "python"}
        try:
            record(global_record_annotations=True, **how)
        except TypeError:
            # Releases before 2.8 mark no steps: the reader finds them by lines.
            record(**how)

    def window(self, step: int, steps: int = _LONG) -> None:
        """Records at least so many whole steps after ``step``."""
        self._until = max(self._until or 0, step + steps)
        self._again = None
        if not self.is_on:
            self._begun = step
            self._switch(True)

    def ends(self, step: int) -> bool:
        """True if the last of some recorded steps is over: PyTorch may drop their events after it."""
        return self.is_on and self._until is not None and step >= self._until

    @property
    def lasts(self) -> bool:
        """True if every step is recorded: that costs little."""
        return self.is_on and self._until is None

    def next_change(self, step: int) -> int:
        """The step after which :meth:`after_step` must be called next."""
        wanted = self._until if self.is_on else self._again
        return max(step + 1, wanted) if wanted is not None and self._entries > 0 else step + (1 << 30)

    def cost(self, allocations: int) -> float:
        """Seconds that the recording takes of a step with so many allocations."""
        if self._capture is None:
            self._capture = self._measured()
        return (_EVENTS + _STACKS * self._capture) * allocations

    def after_step(self, step: int, steps: int, allocations: int, seconds: float) -> float:
        """Decides whether the next step is recorded, after ``steps`` with so many ``allocations`` and ``seconds`` each.

        Returns the seconds that the recording took of them.
        """
        if self._entries <= 0:
            return 0.0
        cost = self.cost(allocations)
        taken = 0.0
        if self.is_on:
            whole = min(steps, step - self._begun)
            self.recorded, self.last = self.recorded + whole, step
            taken = cost * whole
            self._spent += taken
        if self.is_on and (self._until is None or step >= self._until):
            self._until, spent, self._spent = None, self._spent + _SWITCH, 0.0
            if cost > _SHARE * seconds:
                self._switch(False)
                taken += _SWITCH
                self._again = step + max(1, math.ceil(spent / (_SHARE * max(seconds, 1e-6))))
        elif not self.is_on and self._again is not None and step >= self._again:
            self.window(step, _NOW_AND_THEN)
        return taken

    def _measured(self) -> float:
        """Seconds that it takes to note one stack, here."""
        try:
            gather = self._torch._C._profiler.gather_traceback
            start = time.perf_counter()
            for _ in range(20):
                gather(True, False, False)
            return (time.perf_counter() - start) / 20
        except Exception:
            return 2e-6

    def writing(self, allocations: int) -> float:
        """Seconds that writing a snapshot would take, about, after so many allocations."""
        return _WRITES + _WRITES_EACH * min(2 * allocations, self._entries)

    def write(self, path: Path) -> None:
        """Writes a snapshot: it appears whole or not at all. Raises what PyTorch and the system raise."""
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self._torch.cuda.memory._dump_snapshot(os.fspath(part))
            part.replace(path)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
