"""Whether the memory at the ends of steps grows, from its totals alone. Which lines grow is read from a snapshot, by the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

# Steps in which memory that stays may be allocated: optimizer states, workspaces.
SETTLING = 2
# Parts of a run whose least figures are compared, and steps that each needs.
_PARTS = 5
_LEAST = 2
# At most so many figures are kept: then every second one goes.
_MOST = 4096


@dataclass(frozen=True)
class Growth:
    """Growth of memory: bytes that a step adds on average, and the step from which it was seen."""

    bytes_per_step: int
    since_step: int


class Course:
    """Bytes that were allocated at the ends of steps: of a long run, of every second, fourth, eighth … step."""

    def __init__(self) -> None:
        self._figures: list[tuple[int, int]] = []
        self._stride = 1
        self._seen = 0

    def add(self, step: int, allocated: int) -> None:
        """Notes the bytes that were allocated when a step ended."""
        self._seen += 1
        if step <= SETTLING or self._seen % self._stride:
            return
        self._figures.append((step, allocated))
        if len(self._figures) >= _MOST:
            self._figures = self._figures[1::2]
            self._stride *= 2

    def growth(self) -> Optional[Growth]:
        """The growth, if the least figure of each fifth of the run is above that of the fifth before it."""
        figures = self._figures
        size = len(figures) // _PARTS
        if size < _LEAST:
            return None
        figures = figures[len(figures) - size * _PARTS :]
        # Of equal figures the last one: growth is counted from where it begins.
        parts = [figures[at * size : (at + 1) * size] for at in range(_PARTS)]
        least = [min(part, key=lambda figure: (figure[1], -figure[0])) for part in parts]
        if any(after[1] <= before[1] for before, after in zip(least, least[1:])):
            return None
        (first, low), (last, high) = least[0], least[-1]
        return Growth((high - low) // max(last - first, 1), first)
