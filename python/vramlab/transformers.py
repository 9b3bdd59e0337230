"""Callbacks for transformers' Trainer: whether the training fits, before its first step; its memory, in its logs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Optional

from transformers import TrainerCallback

from ._before import Before
from ._predict import predict
from ._watch import watch


class VramCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """``Trainer(…, callbacks=[VramCallback(sequence=2048)])``: before the first step the answer of ``vramlab predict`` is printed.

    ``sequence``: tokens per example, padding included. ``gpu``: the card; the one that the Trainer runs on by default. ``must_fit``: raise
    :class:`vramlab.DoesNotFit` where it does not fit. ``settings``: further flags of ``vramlab predict``. Where nothing can be
    said, a line says why, and the training goes on.
    """

    def __init__(self, sequence: Optional[int] = None, gpu: Optional[str] = None, must_fit: bool = False, **settings: Any) -> None:
        self._sequence = sequence
        self._before = Before(gpu, must_fit)
        self._settings = settings

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Called by the Trainer."""
        if state.is_world_process_zero:
            self._before.say(lambda card: self._asked(args, model, card))

    def _asked(self, args: Any, model: Any, card: dict[str, Any]) -> Any:
        with tempfile.TemporaryDirectory(prefix="vramlab-") as folder:
            file = Path(folder, "arguments.json")
            file.write_text(args.to_json_string(), encoding="utf-8")
            # The Trainer wraps the network for several cards; `module` is the network itself.
            network = getattr(model, "module", model)
            return predict(network, sequence=self._sequence, hf_args=file, **{**card, **self._settings})


class WatchCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """``Trainer(…, callbacks=[WatchCallback()])``: the figures of :class:`vramlab.watch` join the Trainer's logs.

    They stand in ``trainer.state.log_history`` and in the progress bar. For TensorBoard, W&B and MLflow, whose callbacks come first, call
    :func:`watch_trainer`. Arguments are those of :class:`vramlab.watch`.
    """

    def __init__(self, **settings: Any) -> None:
        self._watch = watch(**settings)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the Trainer."""
        self._watch.__enter__()

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[dict[str, Any]] = None, **kwargs: Any) -> None:
        """Called by the Trainer with the figures that its other callbacks write."""
        figures = self._watch.figures()
        if logs is not None:
            logs.update(figures)
        if state.log_history:
            state.log_history[-1].update(figures)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the Trainer."""
        self._watch.__exit__(None, None, None)


def watch_trainer(trainer: Any, **settings: Any) -> WatchCallback:
    """Puts a :class:`WatchCallback` before all callbacks of a Trainer, so that TensorBoard, W&B and MLflow write its figures."""
    callback = WatchCallback(**settings)
    trainer.callback_handler.callbacks.insert(0, callback)
    return callback
