"""Answers of the program: the most used figures as attributes, and the whole JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import Optional, cast

from . import _picture, schemas

# Categories that a rehearsal calls by another name.
_CATEGORIES = {"optimizer": "optimizer_state"}


@dataclass(frozen=True)
class Change:
    """A change that would help. Figures are bytes; a change that was not run has none."""

    change: str
    #: What to write in the script.
    script: str
    #: The command that repeats it.
    command: Optional[str]
    #: True if the change was run.
    checked: bool
    peak: Optional[int]
    reserved: Optional[int]
    #: Bytes of the card that are left.
    left: Optional[int]

    def __str__(self) -> str:
        return f"{self.change}: {self.script}"


def changes(tries: Optional[schemas.Tries]) -> list[Change]:
    """The entries of the answer's ``tries``."""
    return [
        Change(
            one["change"],
            one["script"],
            one["command"],
            one["checked"],
            one["peak_bytes"],
            one["reserved_bytes"],
            one["left_bytes"],
        )
        for one in (tries["entries"] if tries else [])
    ]


@dataclass(frozen=True)
class Answer:
    """What the program printed (``text``). ``str`` gives it."""

    text: str

    def __str__(self) -> str:
        return self.text.rstrip("\n")

    @property
    def sentence(self) -> str:
        """The verdict, which the program prints first: one sentence, however wide the terminal is."""
        lines = str(self).splitlines()
        rest = takewhile(lambda line: line.startswith("  "), lines[1:])
        return " ".join([*lines[:1], *(line.strip() for line in rest)])

    def __repr__(self) -> str:
        return f"<vramlab: {self.sentence or 'nothing was printed'}>"

    def _repr_html_(self) -> str:
        return _picture.answer(self.sentence, str(self))


@dataclass(frozen=True, repr=False)
class Prediction(Answer):
    """What a training takes. Figures are bytes; ``json`` has all fields of ``vramlab-train-1`` (docs/json.md)."""

    json: schemas.TrainV1

    @property
    def fits(self) -> Optional[bool]:
        """True if it fits the card; ``None`` if no card was named."""
        return self.json.get("fits")

    @property
    def peak(self) -> int:
        """Peak of allocated bytes, with enough memory."""
        return self.json["needs"]["allocated_bytes"]

    @property
    def reserved(self) -> int:
        """Peak of reserved bytes: on this card if it fits, otherwise with enough memory."""
        here = self.json["needs"]["reserved_here_bytes"]
        return self.json["needs"]["reserved_bytes"] if here is None else here

    @property
    def missing(self) -> int:
        """Bytes that are missing; 0 if it fits or no card was named."""
        return self.json["needs"]["missing_bytes"] or 0

    @property
    def budget(self) -> Optional[int]:
        """Bytes of the card that a process may take; ``None`` if no card was named."""
        return self.json.get("budget_bytes")

    @property
    def by_category(self) -> dict[str, int]:
        """Bytes at the peak by category: parameters, gradients, activations …"""
        peak = self.json.get("needs_peak") or self.json.get("peak")
        return dict(peak["by_category"]) if peak else {}

    @property
    def try_(self) -> list[Change]:
        """Changes that would make it fit, the smallest first; empty if it fits well."""
        return changes(self.json.get("tries"))

    @property
    def premises(self) -> dict[str, str]:
        """Premises of the answer: type, tokens, batch …"""
        return {premise["name"]: premise["value"] for premise in self.json["premises"]}

    def _repr_html_(self) -> str:
        return _picture.html(self)


@dataclass(frozen=True, repr=False)
class Rehearsal(Prediction):
    """What a script takes, or a network that the user's Python builds. Figures are bytes.

    ``rehearsal`` has all fields of ``vramlab-rehearsal-1``.
    """

    @property
    def rehearsal(self) -> schemas.RehearsalV1:
        """The whole JSON, typed."""
        return cast(schemas.RehearsalV1, self.json)

    @property
    def _fullest(self) -> schemas.RehearsedRank:
        """The process with the most reserved memory."""
        return max(self.rehearsal["ranks"], key=lambda rank: rank["peak_reserved"], default=schemas.RehearsedRank())

    @property
    def _enough(self) -> Optional[schemas.RehearsedNeeds]:
        """The run with enough memory, if the first one had too little."""
        return self.rehearsal.get("with_memory_enough")

    @property
    def peak(self) -> int:
        """Peak of allocated bytes, with enough memory."""
        return self._enough["peak_allocated"] if self._enough else self._fullest.get("peak_allocated", 0)

    @property
    def reserved(self) -> int:
        """Peak of reserved bytes, with enough memory."""
        return self._enough["peak_reserved"] if self._enough else self._fullest.get("peak_reserved", 0)

    @property
    def missing(self) -> int:
        """Bytes that are missing; 0 if it fits."""
        return self._enough["missing"] if self._enough else 0

    @property
    def budget(self) -> Optional[int]:
        """Bytes of the card that PyTorch may reserve."""
        gpu = self.rehearsal["gpu"]
        return gpu["total_bytes"] - gpu["context_bytes"]

    @property
    def by_category(self) -> dict[str, int]:
        """Bytes at the peak by category: parameters, gradients, activations …"""
        shares = (self._enough or self._fullest).get("by_category")
        return {_CATEGORIES.get(name, name): int(count) for name, count in shares.items()} if shares else {}  # type: ignore[call-overload]

    @property
    def premises(self) -> dict[str, str]:
        """Empty: a script says what it does."""
        return {}


@dataclass(frozen=True, repr=False)
class Fit(Answer):
    """The largest batch or sequence; ``json`` has all fields of ``vramlab-fit-1``."""

    json: schemas.FitV1

    @property
    def largest(self) -> Optional[int]:
        """The largest size that fits; ``None`` if not even a size of 1 fits."""
        return self.json["largest"]

    @property
    def budget(self) -> int:
        """Bytes of the card that a process may take."""
        return self.json["budget_bytes"]

    @property
    def try_(self) -> list[Change]:
        """Changes to try if not even a size of 1 fits."""
        return changes(self.json.get("tries"))


@dataclass(frozen=True, repr=False)
class Explanation(Answer):
    """What an out-of-memory message says; ``json`` has all fields of ``vramlab-explain-1``."""

    json: schemas.ExplainV1

    @property
    def verdict(self) -> Optional[str]:
        """The cause: ``full``, ``fragmented`` …; ``None`` if the message has too few figures."""
        return self.json["verdict"]

    @property
    def reason(self) -> str:
        """The reason for the verdict, in arithmetic."""
        return self.json["reason"]

    @property
    def advice(self) -> list[str]:
        """Advice, in the order to try it."""
        return [one["what"] + (f" {one['command']}" if one["command"] else "") for one in self.json["advice"]]


@dataclass(frozen=True, repr=False)
class Checked(Answer):
    """A run compared with its lock file. Figures are bytes."""

    json: schemas.CheckV1
    #: The run in ``json``.
    run: schemas.CheckedRun = field(default_factory=lambda: cast(schemas.CheckedRun, {}))

    @property
    def passed(self) -> bool:
        """True if the run takes no more than the lock file allows."""
        return self.json["passed"]

    @property
    def peak(self) -> int:
        """Peak of allocated bytes."""
        return int(self.run["now"]["memory"]["peak"]["allocated"])

    @property
    def reserved(self) -> int:
        """Peak of reserved bytes."""
        return int(self.run["now"]["memory"]["peak"]["reserved"])
