"""Tells other processes about a watched one, by files in a folder, and takes their requests for a snapshot."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Optional

from .history import FIRST
from .meter import Meter

# Seconds between two statuses, and between two looks for a request: at least, and so many times as long as they take.
_EVERY, _TIMES = 0.5, 1000


class Teller:
    """Writes ``PID.json``, a status, and, if it ``pictures``, ``PID.pickle``, snapshots of PyTorch, less and less often.

    ``PID.ask`` is a request: a snapshot of the next two steps is written to the path in it. If memory runs out, one is written to ``out``.
    """

    def __init__(self, meter: Meter, folder: Path, out: Path, *, pictures: bool) -> None:
        self._meter = meter
        self._folder = folder
        self._out = out
        self._pictures = pictures
        self._begun = self._told = time.perf_counter()
        self._next_picture = 0.0
        self._telling = 0.0
        self._asked: Optional[tuple[Path, int]] = None
        self._snapshot: Optional[tuple[str, int]] = None
        self._note: Optional[str] = None
        meter.each_step = self._each_step
        meter.when_out = self._when_out
        self.tell()

    def _file(self, ending: str) -> Path:
        return self._folder / f"{os.getpid()}.{ending}"

    def tell(self, ended: bool = False) -> None:
        """Writes the status."""
        path, step = self._snapshot or (None, 0)
        told = {"ended": ended, "folder": str(self._folder), "snapshot": path, "snapshot_step": step, "note": self._note}
        part = self._file("part")
        part.write_text(json.dumps({**self._meter.status(), **told}), encoding="utf-8")
        part.replace(self._file("json"))
        self._told = time.perf_counter()

    def _each_step(self) -> None:
        meter, now = self._meter, time.perf_counter()
        if self._asked is not None and meter.steps >= self._asked[1]:
            (path, _), self._asked = self._asked, None
            self._write(path)
        if self._pictures and meter.steps >= FIRST and meter.history.is_on:
            self._maybe_draw(now)
        if now - self._told < max(_EVERY, _TIMES * self._telling) and meter.steps > 1:
            return
        start = time.perf_counter()
        self._look_for_a_request()
        self.tell()
        self._telling = time.perf_counter() - start

    def _maybe_draw(self, now: float) -> None:
        """Writes a picture if steps were recorded: at first and when something happened at once, else if it is time and affordable."""
        meter, history, since = self._meter, self._meter.history, now - self._begun
        ends = history.ends(meter.steps)
        if not (ends or history.lasts):
            return
        at_once = ends and (meter.is_urgent or self._next_picture == 0.0)
        if at_once or (since >= self._next_picture and meter.can_afford(history.writing(meter.allocations))):
            meter.is_urgent = False
            self._write(self._file("pickle"))
            self._next_picture = 2 * since

    def _look_for_a_request(self) -> None:
        ask = self._file("ask")
        try:
            path = ask.read_text(encoding="utf-8")
            ask.unlink()
        except OSError:
            return
        self._meter.history.window(self._meter.steps, 2)
        self._asked = (Path(path), self._meter.steps + 2)

    def _write(self, path: Path) -> None:
        try:
            self._meter.history.write(path)
            self._snapshot, self._note = (str(path), self._meter.steps), None
        except Exception as error:
            self._note = f"{path} could not be written: {error}"

    def _when_out(self) -> None:
        self._write(self._out)
        self.tell()

    def end(self) -> None:
        """Tells the last figures; what pictures has the last steps that were recorded in a snapshot."""
        meter = self._meter
        if meter.began:
            meter.look_at_peaks()
        has_events = meter.history.is_on or self._next_picture == 0.0
        if self._pictures and meter.began and meter.steps and meter.out_of_memory is None and has_events:
            self._write(self._file("pickle"))
        self.tell(ended=True)

    def remove(self) -> None:
        """Deletes the status."""
        for ending in ("json", "ask", "part"):
            with contextlib.suppress(OSError):
                self._file(ending).unlink()


def runtime_folder() -> Optional[Path]:
    """The folder in which ``vramlab watch`` looks for statuses; it is made if it is absent. ``None`` if others may write there."""
    with contextlib.suppress(OSError, AttributeError):
        named, runtime = os.environ.get("VRAMLAB_RUNTIME_DIR"), os.environ.get("XDG_RUNTIME_DIR")
        if named:
            folder = Path(named)
        elif runtime:
            folder = Path(runtime, "vramlab")
        else:
            import tempfile

            folder = Path(tempfile.gettempdir(), f"vramlab-{os.geteuid()}")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid == os.geteuid() and not found.st_mode & 0o022:
            return folder
    return None
