"""What a training takes, and the largest that fits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, cast

from . import schemas
from ._answers import Answer, Explanation, Fit, Prediction, Rehearsal
from ._binary import Ran, VramlabError, Word, answer, flags, run
from ._model import Network, network
from ._optimizer import flags_of


def predict(
    model: Any,
    *args: Any,
    inputs: Optional[Mapping[str, Any]] = None,
    batch: Optional[int] = None,
    sequence: Optional[int] = None,
    optimizer: Any = None,
    gpu: Optional[str] = None,
    **settings: Any,
) -> Prediction:
    """What the training of a network takes in PyTorch, and whether it fits a card. No GPU is needed.

    ``model``: a module of PyTorch with an example of its inputs (``predict(model, torch.randn(2, 3, 224, 224), batch=32)``; by name in
    ``inputs``); a model of transformers as it is; or everything that ``vramlab predict`` reads: a name (``"gpt2"``,
    ``"meta-llama/Llama-3.2-1B"``), a path (``config.json``, ``model.pt2``, a recipe), a script with its arguments
    (``predict("train.py", "--batch-size", "16")``). What is rehearsed comes as a :class:`Rehearsal`.

    ``optimizer``: a name, or an object of ``torch.optim``. ``gpu``: a card (``"rtx4090"``) or a size (``"24GiB"``).
    ``settings``: every other flag of ``vramlab predict``, such as ``precision="autocast-bf16"`` or ``checkpoint="blocks"``.

    Raises :class:`VramlabError` for what vramlab does not support, with its name.
    """
    given = dict(settings, batch=batch, sequence=sequence, gpu=gpu)
    ran, net = _ask(["predict"], model, args, inputs, optimizer, given)
    if ran.json is not None and ran.json.get("schema") == "vramlab-rehearsal-1":
        return Rehearsal(ran.text, cast(schemas.TrainV1, ran.json))
    found = Prediction(ran.text, cast(schemas.TrainV1, answer(ran, "vramlab-train-1")))
    if not net.agrees(found.by_category):
        held = sum(found.by_category.get(name, 0) for name in ("parameter", "buffer"))
        raise VramlabError(
            f"{type(model).__name__} has {net.held_bytes} bytes of parameters and buffers, and its configuration describes {held}: "
            "it was changed after it was made; give example inputs"
        )
    return found


def fit(
    model: Any,
    *args: Any,
    inputs: Optional[Mapping[str, Any]] = None,
    gpu: str,
    sequence: Optional[int] = None,
    optimizer: Any = None,
    **settings: Any,
) -> Fit:
    """The largest batch that fits a card. The arguments are those of :func:`predict`."""
    if not isinstance(model, (str, os.PathLike)) and not args and not inputs:
        # Whether its configuration describes it, a prediction tells.
        predict(model, sequence=sequence, optimizer=optimizer, batch=1, **_without(settings, "of", "maximum"))
    ran, _ = _ask(["predict", "--largest"], model, args, inputs, optimizer, dict(settings, sequence=sequence, gpu=gpu))
    return Fit(ran.text, cast(schemas.FitV1, answer(ran, "vramlab-fit-1")))


def _without(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in names}


def _ask(
    command: list[Word],
    model: Any,
    args: tuple[Any, ...],
    inputs: Optional[Mapping[str, Any]],
    optimizer: Any,
    settings: dict[str, Any],
) -> tuple[Ran, Network]:
    with tempfile.TemporaryDirectory(prefix="vramlab-") as folder:
        net = network(model, args, inputs, Path(folder))
        # A script's own arguments follow its name.
        after = [] if net.word is None else [net.word, *net.script]
        ran = run([*command, *flags(words_of(net, optimizer, settings))], after)
    return ran, net


def words_of(net: Network, optimizer: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """All flags of a run: what is given wins over what the network says of itself."""
    given = {name: value for name, value in settings.items() if value is not None}
    return {**net.flags, **flags_of(optimizer), **given}


def explain(error: Any) -> Explanation:
    """What an out-of-memory message of PyTorch says, and what to try. ``error``: the exception, or text with the message in it.

    Raises :class:`VramlabError` where there is no such message.
    """
    ran = run(["explain", "-"], stdin=str(error))
    return Explanation(ran.text, cast(schemas.ExplainV1, answer(ran, "vramlab-explain-1")))


def show_snapshot(path: Path) -> Answer:
    """Who held the memory of a recorded run, as ``vramlab snapshot show`` prints it."""
    return Answer(run(["snapshot", "show", path]).text)
