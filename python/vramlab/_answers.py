"""Answers, with the figures that are asked for most as attributes, and all of the JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional, cast

from . import _picture, schemas


@dataclass(frozen=True)
class Change:
    """A change that would help. What nothing was run for has no figures (bytes)."""

    change: str
    #: What to write in the script.
    script: str
    #: The command that repeats it.
    command: Optional[str]
    #: Whether it was run.
    checked: bool
    peak: Optional[int]
    reserved: Optional[int]
    #: What is left of the card.
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

    def __repr__(self) -> str:
        lines = str(self).splitlines()
        return f"<vramlab: {lines[0] if lines else 'nothing was printed'}>"


@dataclass(frozen=True, repr=False)
class Prediction(Answer):
    """What a training takes. Figures are bytes; ``json`` has all fields of ``vramlab-train-1`` (docs/json.md)."""

    json: schemas.TrainV1

    @property
    def fits(self) -> Optional[bool]:
        """Whether it fits the card; ``None`` where none was named."""
        return self.json.get("fits")

    @property
    def peak(self) -> int:
        """The most that is allocated at once, with memory enough."""
        return self.json["needs"]["allocated_bytes"]

    @property
    def reserved(self) -> int:
        """The most that is reserved: on this card where it fits, with memory enough where not."""
        here = self.json["needs"]["reserved_here_bytes"]
        return self.json["needs"]["reserved_bytes"] if here is None else here

    @property
    def missing(self) -> int:
        """What is lacking; 0 where it fits or no card was named."""
        return self.json["needs"]["missing_bytes"] or 0

    @property
    def budget(self) -> Optional[int]:
        """What a process may take of the card; ``None`` where none was named."""
        return self.json.get("budget_bytes")

    @property
    def by_category(self) -> dict[str, int]:
        """What is held at the peak: parameters, gradients, activations …"""
        peak = self.json.get("needs_peak") or self.json.get("peak")
        return dict(peak["by_category"]) if peak else {}

    @property
    def try_(self) -> list[Change]:
        """What would make it fit, the smallest change first; empty where it fits well."""
        return changes(self.json.get("tries"))

    @property
    def premises(self) -> dict[str, str]:
        """Type, tokens, batch …: what the answer rests on."""
        return {premise["name"]: premise["value"] for premise in self.json["premises"]}

    def _repr_html_(self) -> str:
        return _picture.html(self)


@dataclass(frozen=True, repr=False)
class Fit(Answer):
    """The largest batch or sequence; ``json`` has all fields of ``vramlab-fit-1``."""

    json: schemas.FitV1

    @property
    def largest(self) -> Optional[int]:
        """The largest size that fits; ``None`` where not even one does."""
        return self.json["largest"]

    @property
    def budget(self) -> int:
        """What a process may take of the card, in bytes."""
        return self.json["budget_bytes"]

    @property
    def try_(self) -> list[Change]:
        """What to change, where not even one fits."""
        return changes(self.json.get("tries"))


@dataclass(frozen=True, repr=False)
class Explanation(Answer):
    """What an out-of-memory message says; ``json`` has all fields of ``vramlab-explain-1``."""

    json: schemas.ExplainV1

    @property
    def verdict(self) -> Optional[str]:
        """``full``, ``fragmented`` …; ``None`` where the message has too few figures to say."""
        return self.json["verdict"]

    @property
    def reason(self) -> str:
        """Why, in arithmetic."""
        return self.json["reason"]

    @property
    def advice(self) -> list[str]:
        """What to try, first things first."""
        return [one["what"] + (f" {one['command']}" if one["command"] else "") for one in self.json["advice"]]


@dataclass(frozen=True, repr=False)
class Checked(Answer):
    """A run beside its lock file. Figures are bytes."""

    json: schemas.CheckV1
    #: The run in ``json``.
    run: schemas.CheckedRun = field(default_factory=lambda: cast(schemas.CheckedRun, {}))

    @property
    def passed(self) -> bool:
        """Whether it takes no more than what is locked."""
        return self.json["passed"]

    @property
    def peak(self) -> int:
        """The most that is allocated at once."""
        return int(self.run["now"]["memory"]["peak"]["allocated"])

    @property
    def reserved(self) -> int:
        """The most that is reserved."""
        return int(self.run["now"]["memory"]["peak"]["reserved"])
