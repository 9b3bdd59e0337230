"""Draws a prediction in a notebook: a bar of the bytes at the peak by category, with the card's limit."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Optional, Protocol


class _Change(Protocol):
    """What is drawn of a change."""

    @property
    def change(self) -> str: ...
    @property
    def script(self) -> str: ...
    @property
    def peak(self) -> Optional[int]: ...
    @property
    def left(self) -> Optional[int]: ...


class _Prediction(Protocol):
    """What is drawn of a prediction, whose text is the whole answer."""

    @property
    def sentence(self) -> str: ...
    @property
    def try_(self) -> Sequence[_Change]: ...
    @property
    def by_category(self) -> dict[str, int]: ...
    @property
    def reserved(self) -> int: ...
    @property
    def budget(self) -> Optional[int]: ...


# The colours of vramlab's reports.
_COLORS = {
    "parameter": "#0072b2",
    "buffer": "#a3a8ae",
    "input": "#7cc4ec",
    "gradient": "#e69f00",
    "optimizer_state": "#b5629a",
    "activation": "#009e73",
    "temporary": "#d55e00",
    "workspace": "#efe04a",
}
_OTHER = "#8a8f98"
_WIDTH = 600


def size(count: int) -> str:
    """Formats bytes as the program prints them: ``1.5 GiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.2f}".rstrip("0").rstrip(".") + f" {name}"
    return f"{count} B"


def answer(sentence: str, text: str, drawn: str = "") -> str:
    """Returns the sentence, what is drawn below it, and the whole answer folded away, as HTML."""
    folded = f"<details><summary>the whole answer</summary><pre>{escape(text)}</pre></details>"
    return f"<div><p><strong>{escape(sentence)}</strong></p>{drawn}{folded}</div>"


def html(prediction: _Prediction) -> str:
    """Returns the picture, the changes to try, and the whole answer folded away, as HTML."""
    rows = "".join(map(_row, prediction.try_))
    table = f"<table><tr><th>Try<th>in the script<th>peak<th>left</tr>{rows}</table>" if rows else ""
    return answer(prediction.sentence, str(prediction), _bar(prediction) + table)


def _row(change: _Change) -> str:
    figures = "".join(f"<td>{'' if figure is None else size(figure)}" for figure in (change.peak, change.left))
    return f"<tr><td>{escape(change.change)}<td><code>{escape(change.script)}</code>{figures}</tr>"


def _bar(prediction: _Prediction) -> str:
    parts = sorted(prediction.by_category.items(), key=lambda part: -part[1])
    held = [(name, count) for name, count in parts if count > 0]
    most = max(prediction.reserved, prediction.budget or 0, 1)
    scale = _WIDTH / most
    x, drawn, legend = 0.0, [], []
    for name, count in held:
        color = _COLORS.get(name, _OTHER)
        label = f"{escape(name.replace('_', ' '))}: {size(count)}"
        drawn.append(f'<rect x="{x:.1f}" y="4" width="{count * scale:.1f}" height="24" fill="{color}"><title>{label}</title></rect>')
        legend.append(f'<span style="white-space:nowrap"><span style="color:{color}">&#9632;</span> {label}</span>')
        x += count * scale
    if prediction.budget is not None:
        at = min(prediction.budget * scale, _WIDTH - 1)
        drawn.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="32" stroke="#cc0000" stroke-width="2"/>')
        legend.append(f'<span style="white-space:nowrap"><span style="color:#cc0000">|</span> the card: {size(prediction.budget)}</span>')
    svg = f'<svg viewBox="0 0 {_WIDTH} 32" width="100%" style="max-width:{_WIDTH}px" role="img">{"".join(drawn)}</svg>'
    return f"{svg}<p>{' &nbsp; '.join(legend)}</p>"
