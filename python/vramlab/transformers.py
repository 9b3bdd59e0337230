"""A callback for transformers' Trainer that says before the first step whether the training fits."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Optional

from transformers import TrainerCallback

from ._before import Before
from ._predict import predict


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
