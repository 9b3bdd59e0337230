"""A training's memory, step by step: the figures that the terminal, callbacks and loggers show."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Optional

from .growth import SETTLING, Course
from .history import ENTRIES, History
from .kept import Kept

SCHEMA = "vramlab-watched-1"
# Steps of other optimizers after which the one that marked the steps is over.
_OVER = 16
# Share of the time that looks at the counters may take, and that what is not urgent may.
_LOOKS, _REST = 0.001, 0.001
# Steps at the beginning that are looked at one by one, whatever it takes: growth shows in ten. Steps between two later looks, at most.
_ONE_BY_ONE, _FAR = 16, 128
# Seconds between two looks at the memory that others on the card leave.
_ROOM_EVERY = 10.0
# Memory is short if so much of the room is reserved, or if it runs out within so many steps.
_SHORT, _SOON = 0.95, 64

Figures = dict[str, Any]


class Meter:
    """Counts the steps of optimizers, and reads PyTorch's counters when one has ended: it changes and resets none of them.

    ``log`` is given the figures and the step, every ``log_every`` steps and at the end. Of the time since the first
    step all else takes about one percent at most: short steps are not looked at or recorded one by one, and what is not urgent waits.
    """

    def __init__(
        self,
        torch: Any,
        *,
        entries: int = ENTRIES,
        log: Optional[Callable[[Figures, int], None]] = None,
        log_every: int = 10,
    ) -> None:
        self.torch = torch
        self.history = History(torch, entries)
        self.kept = Kept(torch)
        self.steps = 0
        self.began = False
        # Called after each step, and when memory runs out.
        self.each_step: Callable[[], None] = lambda: None
        self.when_out: Callable[[], None] = lambda: None
        self.predicted: Optional[Figures] = None
        self.out_of_memory: Optional[Figures] = None
        self.problem: Optional[str] = None
        self._pid = os.getpid()
        self._log, self._log_every = log, max(1, log_every)
        self._handles: list[Any] = []
        self._marker: Optional[int] = None
        # The optimizer whose steps count, by its identity: until the next look its steps only add one.
        self._quick: Optional[int] = None
        self._others = 0
        self._course = Course()
        self._growth: Any = None
        self._categories: dict[str, int] = {}
        self._counting = 0.0
        # The last step that was looked at, and the next ones that are: at all, for categories, growth and the log.
        self._looked, self._next, self._count_at, self._look_at, self._log_at = 0, 0, 2, 8, self._log_every
        self._logged = 0
        self._device = 0
        self._seconds: deque[float] = deque(maxlen=33)
        self._own = 0.0
        self._since = self._last = time.perf_counter()
        self._started_ms = int(time.time() * 1000)
        self._allocations = 0
        self._peak, self._peak_step, self._peak_reserved = 0, 0, 0
        self._now: Figures = {}
        self._room: Optional[int] = None
        self._room_at = 0.0
        # Something happened: the steps that are recorded now are worth a snapshot.
        self.is_urgent = False

    # Begin and end.

    def install(self) -> None:
        """Waits for the first use of a card and for steps of optimizers."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.kept.begin()
        leaving = weakref.WeakMethod(self._leave)
        os.register_at_fork(after_in_child=lambda: (leaving() or _nothing)())
        self._handles.append(register_optimizer_step_post_hook(self._after_optimizer))
        # Now, if the card is in use.
        self.torch.cuda._lazy_call(self._at_first_use)

    def remove(self) -> None:
        """Ends the recording and leaves nothing behind."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.kept.end()
        if self.began and self._is_here():
            self.began = False
            with contextlib.suppress(Exception):
                self.history.end()

    def _leave(self) -> None:
        """Counts nothing any more: this is a process that was forked from the watched one."""
        self.began, self._quick = False, None

    def _at_first_use(self) -> None:
        if not self._is_here():
            return
        try:
            self.history.begin()
            self.torch._C._cuda_attach_out_of_memory_observer(self._at_out_of_memory)
            self.began = True
        except Exception as error:
            self.problem = f"PyTorch does not record: {error}"

    def _is_here(self) -> bool:
        """False in a process that was forked from the watched one."""
        return os.getpid() == self._pid

    # Steps.

    def _after_optimizer(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        # A few microseconds are a percent of a short step: what follows asks the system nothing.
        step = self.steps + 1
        if step < self._next and id(optimizer) == self._quick:
            self.steps = step
            return
        self._quick = None
        if not self.began or not self._is_here():
            return
        with contextlib.suppress(Exception), self.torch._C.DisableTorchFunction():
            self.kept.add(optimizer)
            first = next((parameter for group in optimizer.param_groups for parameter in group["params"]), None)
            if self._marks(id(first)):
                if first is not None and first.is_cuda:
                    self._device = first.device.index
                self.step()
                # The first steps are looked at whatever `_next` says.
                self._quick = id(optimizer) if self.steps >= 2 else None

    def _marks(self, first: int) -> bool:
        """True if steps of the optimizer with this first parameter count: one of several does, until it has not stepped for long."""
        if first != self._marker:
            self._others += 1
            if self._marker is not None and self._others <= _OVER:
                return False
            self._marker = first
        self._others = 0
        return True

    def step(self) -> None:
        """Ends a step. Loops without an optimizer of ``torch.optim`` call this."""
        self.steps += 1
        if self.steps > 2 and self.steps < self._next:
            return
        now = time.perf_counter()
        steps = self.steps - self._looked
        # The first step builds and loads: its time says nothing.
        if self._looked:
            self._seconds.append((now - self._last) / steps)
        else:
            self.kept.end()
            self._since, self._own = now, 0.0
        self._looked = self.steps
        allocations = self._allocations
        self._read_and_judge()
        self._course.add(self.steps, self._now["allocated"])
        counting, logging = self._now_and_then()
        recording = self.history.after_step(self.steps, steps, (self._allocations - allocations) // steps, self.step_seconds() or 0.0)
        # What was allocated before the first look belongs to no step.
        self._own += recording if self._seconds else 0.0
        self._last = time.perf_counter()
        # How often figures are logged, and to whom, is the script's own choice.
        self._own += self._last - now - logging
        cost = self._last - now - counting - logging
        after = min(max(1, int(cost / (_LOOKS * (self.step_seconds() or 1.0)))), _FAR) if self.steps >= _ONE_BY_ONE else 1
        self._next = min(self.steps + after, self.history.next_change(self.steps))

    def _now_and_then(self) -> tuple[float, float]:
        """Does what is not done in each look. Returns the seconds of the counting by category, and those of the log."""
        counting = logging = 0.0
        # At steps 1, 2, 4, 8 …, if it is afforded: the first step has nearly all.
        if self.steps == 1 or (self.steps >= self._count_at and self.can_afford(self._counting)):
            self._count()
            self._count_at = 2 * self.steps
            counting = self._counting
        if self.steps >= self._look_at:
            self._look()
            self._look_at = self.steps + 8
        if self._log is not None and self.steps >= self._log_at:
            start = time.perf_counter()
            self._log_at = self.steps - self.steps % self._log_every + self._log_every
            self._write_log()
            logging = time.perf_counter() - start
        self.each_step()
        return counting, logging

    def _write_log(self) -> None:
        if self._log is not None and self.steps > self._logged:
            self._logged = self.steps
            self._log(self.figures(), self.steps)

    def end(self) -> None:
        """Reads the last figures, and logs them if no log has them."""
        if self.began and self.steps:
            self.look_at_peaks()
            self._write_log()

    def _read(self) -> None:
        stats = self.torch.cuda.memory_stats_as_nested_dict(self._device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        self._allocations = stats["allocation"]["all"]["allocated"]
        # The script may reset its peaks.
        if allocated["peak"] > self._peak:
            self._peak, self._peak_step = allocated["peak"], max(self.steps, 1)
        self._peak_reserved = max(self._peak_reserved, reserved["peak"])
        self._now = {
            "allocated": allocated["current"],
            "reserved": reserved["current"],
            "retries": stats.get("num_alloc_retries", 0),
        }

    def _read_and_judge(self) -> None:
        """Reads the counters. If the card is nearly full and takes more, or took a cache back, the next steps are recorded."""
        peak, retries = self._peak, self._now.get("retries", 0)
        self._read()
        if self.steps <= SETTLING:
            return
        rose = self._peak > peak and self._peak_reserved > _SHORT * (self.room() or math.inf)
        if rose or self._now["retries"] > retries:
            self._record()

    def _record(self) -> None:
        self.history.window(self.steps)
        self.is_urgent = True

    def look_at_peaks(self) -> None:
        """Reads the peaks once more: the last steps may not have been looked at."""
        now = self._now
        self._read()
        self._now = {**now, "retries": self._now["retries"]} if now else self._now

    def _count(self) -> None:
        start = time.perf_counter()
        self._categories = self.kept.by_category(self._device)
        self._counting = time.perf_counter() - start

    def _look(self) -> None:
        """Looks whether memory grows: as it begins to, and before it runs out, the next steps are recorded."""
        grew, self._growth = self._growth is not None, self._course.growth()
        if self._growth is not None and (not grew or (self.runs_out_at() or math.inf) <= self.steps + _SOON):
            self._record()

    # Running out.

    def _at_out_of_memory(self, device: int, requested: int, _total: int, free: int) -> None:
        if not self._is_here():
            return
        with contextlib.suppress(Exception), self.torch._C.DisableTorchFunction():
            count = self.out_of_memory["count"] if self.out_of_memory else 0
            self._device = device
            self._read()
            self._count()
            failed = {"step": self.steps + 1, "requested": requested, "free": free, "count": count + 1}
            self.out_of_memory = {**failed, "recorded": self.history.is_on, "line": self._line(), **self._now}
            self.when_out()
            # A script that goes on with less may run out again.
            self.history.window(self.steps)
            self._next = 0

    def _line(self) -> Optional[str]:
        """The line of the script that runs now; none in the backward pass, which has a thread of its own."""
        others = [os.path.dirname(file) for file in (getattr(self.torch, "__file__", None), __file__) if file]
        frame: Any = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith(tuple(others)):
                return f"{os.path.basename(file)}:{frame.f_lineno} {frame.f_code.co_name}"
            frame = frame.f_back
        return None

    # Figures.

    def step_seconds(self) -> Optional[float]:
        """The median of the last steps' seconds."""
        return sorted(self._seconds)[len(self._seconds) // 2] if self._seconds else None

    def can_afford(self, seconds: float) -> bool:
        """True if so much more is within the share of the time that the watch may take."""
        return self._own + seconds < _REST * (time.perf_counter() - self._since)

    @property
    def allocations(self) -> int:
        """Allocations so far."""
        return self._allocations

    def room(self) -> Optional[int]:
        """Bytes that PyTorch may reserve: what it has and what is free, within the process's own limit."""
        now = time.perf_counter()
        if self._room is None or now - self._room_at > _ROOM_EVERY:
            self._room_at = now
            with contextlib.suppress(Exception):
                free, total = self.torch.cuda.mem_get_info(self._device)
                room = free + self._now.get("reserved", 0)
                fraction = getattr(self.torch.cuda, "get_per_process_memory_fraction", lambda _device: 1.0)
                self._room = min(room, int(total * fraction(self._device)))
        return self._room

    def runs_out_at(self) -> Optional[int]:
        """The step at which the peak meets the card's end if memory grows on like this; ``None`` if nothing grows."""
        room = self.room()
        if self._growth is None or room is None:
            return None
        left: int = max(0, room - self._peak)
        return self.steps + left // max(int(self._growth.bytes_per_step), 1)

    def by_category(self) -> dict[str, int]:
        """Bytes at the end of the last step by category. ``other``: what no module or optimizer has."""
        known = sum(self._categories.values())
        return {**self._categories, "other": max(0, self._now.get("allocated", 0) - known)}

    def figures(self) -> Figures:
        """The figures as loggers take them: numbers by name. Bytes."""
        found: Figures = {
            "vramlab/allocated": self._now.get("allocated", 0),
            "vramlab/reserved": self._now.get("reserved", 0),
            "vramlab/peak": self._peak,
            "vramlab/peak_reserved": self._peak_reserved,
            **{f"vramlab/{name}": held for name, held in self.by_category().items()},
            "vramlab/growth_per_step": self._growth.bytes_per_step if self._growth else 0,
        }
        runs_out = self.runs_out_at()
        if runs_out is not None:
            found["vramlab/runs_out_at_step"] = runs_out
        for name, value in (self.predicted or {}).items():
            found[f"vramlab/predicted_{name}"] = value
        return found

    def status(self) -> Figures:
        """All of it, in the form that the program reads (``vramlab-watched-1``)."""
        growth = self._growth and {
            "bytes_per_step": self._growth.bytes_per_step,
            "since_step": self._growth.since_step,
            "runs_out_at_step": self.runs_out_at(),
        }
        elapsed = time.perf_counter() - self._since
        return {
            "schema": SCHEMA,
            "pid": self._pid,
            "rank": _number(os.environ.get("RANK")),
            "script": " ".join(sys.argv) or "python",
            "torch": self.torch.__version__,
            "card": self._card(),
            "device": self._device,
            "started_ms": self._started_ms,
            "updated_ms": int(time.time() * 1000),
            "steps": self.steps,
            "step_seconds": self.step_seconds(),
            "allocated": self._now.get("allocated", 0),
            "reserved": self._now.get("reserved", 0),
            "peak_allocated": self._peak,
            "peak_step": self._peak_step,
            "peak_reserved": self._peak_reserved,
            "room": self.room() if self.began else None,
            "retries": self._now.get("retries", 0),
            "by_category": self.by_category() if self.began else {},
            "growth": growth,
            "out_of_memory": self.out_of_memory,
            "recorded_steps": self.history.recorded,
            "last_recorded_step": self.history.last,
            "own_share": self._own / elapsed if self.steps > 1 and elapsed > 0 else None,
            "problem": self.problem,
        }

    def _card(self) -> Optional[str]:
        if not self.began:
            return None
        with contextlib.suppress(Exception):
            return str(self.torch.cuda.get_device_name(self._device))
        return None


def _nothing() -> None:
    pass


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text and text.isdigit() else None
