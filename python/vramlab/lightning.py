"""A callback for Lightning that says before the first step whether the training fits."""

from __future__ import annotations

from typing import Any, Optional

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from ._before import Before
from ._binary import VramlabError
from ._predict import predict

# Lightning's names, and the program's.
_PRECISIONS = {"32-true": "fp32", "16-mixed": "autocast-fp16", "bf16-mixed": "autocast-bf16", "16-true": "fp16", "bf16-true": "bf16"}


class VramCallback(Callback):  # type: ignore[misc, unused-ignore]
    """``Trainer(…, callbacks=[VramCallback(batch=32, loss="mse")])``: before the first step the answer of ``vramlab predict`` is printed.

    The module's ``forward`` is exported with ``example`` (a tuple of its arguments; ``example_input_array`` unless said), at ``batch``;
    what ``training_step`` does besides is not seen: name the loss by ``loss``. ``gpu``, ``must_fit`` and further flags are those of
    :class:`vramlab.transformers.VramCallback`.
    """

    def __init__(
        self,
        batch: Optional[int] = None,
        example: Optional[tuple[Any, ...]] = None,
        gpu: Optional[str] = None,
        must_fit: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._batch = batch
        self._example = example
        self._before = Before(gpu, must_fit)
        self._settings = settings

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        if trainer.is_global_zero:
            self._before.say(lambda card: self._asked(trainer, pl_module, card))

    def _asked(self, trainer: Any, module: Any, card: dict[str, Any]) -> Any:
        example = self._example if self._example is not None else module.example_input_array
        if example is None:
            raise VramlabError("an example of the inputs is needed: example=, or example_input_array in the module")
        if len(trainer.optimizers) != 1:
            raise VramlabError(f"{len(trainer.optimizers)} optimizers are not represented")
        if trainer.world_size != 1:
            raise VramlabError(f"{trainer.world_size} processes are not represented here; `vramlab rehearse` runs them")
        if str(trainer.precision) not in _PRECISIONS:
            raise VramlabError(f"precision {trainer.precision} is not represented")
        own = {
            "precision": _PRECISIONS[str(trainer.precision)],
            "accumulate": trainer.accumulate_grad_batches,
            "clip_grad_norm": trainer.gradient_clip_val or None,
        }
        arguments = example if isinstance(example, tuple) else (example,)
        settings: dict[str, Any] = {**own, **card, **self._settings}
        return predict(module, *arguments, batch=self._batch, optimizer=trainer.optimizers[0], **settings)
