"""PyTorch's own recording of allocations: lines while they cost little, and snapshots that appear whole."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Optional

# Events that PyTorch keeps in main memory: the last ones.
ENTRIES = 100_000
# Share of a step's time that noting lines may take.
_SHARE = 0.003
# Steps of which lines are noted whatever it takes: what stays is allocated in the first ones.
_WINDOW = 8
# Time that writing a snapshot takes: at least, and for each event.
_WRITES, _WRITES_EACH = 0.1, 1.5e-5


class History:
    """The recording. Events are always kept; their lines only in some steps if noting them takes more than half a percent of a step.

    With no ``entries`` nothing is recorded: a snapshot has the memory of its moment, without lines and events.
    """

    def __init__(self, torch: Any, entries: int = ENTRIES) -> None:
        self._torch = torch
        self._entries = entries
        self._capture: Optional[float] = None
        self._left = _WINDOW
        self.has_lines = False

    def begin(self) -> None:
        """Starts the recording, with lines."""
        self._record(True)

    def end(self) -> None:
        """Ends the recording."""
        if self._entries > 0:
            self._torch.cuda.memory._record_memory_history(enabled=None)

    def _record(self, lines: bool) -> None:
        if self._entries <= 0:
            return
        self.has_lines = lines
        # Not "all": with lines of frees, those while an exception unwinds C++ lose the exception.
        context = {"context": "alloc", "stacks": "python"} if lines else {"context": None}
        record = self._torch.cuda.memory._record_memory_history
        try:
            record(max_entries=self._entries, global_record_annotations=True, **context)
        except TypeError:
            # Releases before 2.8 mark no steps: the reader finds them by lines.
            record(max_entries=self._entries, **context)

    def window(self) -> None:
        """Notes lines in the next steps."""
        self._left = _WINDOW
        if not self.has_lines:
            self._record(True)

    def after_step(self, allocations: int, seconds: float) -> float:
        """Decides whether the next step's lines are noted. Returns the seconds that noting those of this step took."""
        if self._entries <= 0:
            return 0.0
        if self._capture is None:
            self._capture = self._measured()
        cost = self._capture * allocations
        taken = cost if self.has_lines else 0.0
        self._left -= 1
        if self.has_lines and self._left <= 0 and cost > _SHARE * seconds:
            self._record(False)
        elif not self.has_lines and cost < _SHARE / 2 * seconds:
            self._record(True)
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
