"""Callbacks for Lightning: whether the training fits, before its first step; its memory, in its loggers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from ._before import Before
from ._binary import VramlabError
from ._predict import predict
from ._watch import watch

# Names of precisions: Lightning's, and the program's.
_PRECISIONS = {"32-true": "fp32", "16-mixed": "autocast-fp16", "bf16-mixed": "autocast-bf16", "16-true": "fp16", "bf16-true": "bf16"}

# What training_step holds ends with it; the last step's gradients stay until then (lightning.pytorch.loops.optimization.closure.Closure).
_SCHEDULE = "input,forward,loss,exit_autocast,del,zero_grad,backward,step"


class VramCallback(Callback):  # type: ignore[misc, unused-ignore]
    """``Trainer(…, callbacks=[VramCallback(loss="mse")])``: before the first step the answer of ``vramlab predict`` is printed.

    The module's ``forward`` is exported with ``example`` (a tuple of its arguments, or a mapping of its arguments by name;
    ``example_input_array`` unless said), at ``batch`` (that of the loader unless said). What ``training_step`` does besides is not
    seen: name the loss by ``loss``. ``gpu``, ``must_fit`` and further flags are those of :class:`vramlab.transformers.VramCallback`.
    """

    def __init__(
        self,
        batch: Optional[int] = None,
        example: Any = None,
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
        args, inputs = _as_it_trains(trainer, self._example if self._example is not None else module.example_input_array)
        settings: dict[str, Any] = {**_settings(trainer, module), **card, **self._settings}
        batch = self._batch if self._batch is not None else _batch(trainer)
        return predict(module, *args, inputs=inputs, batch=batch, optimizer=trainer.optimizers[0], **settings)


def _settings(trainer: Any, module: Any) -> dict[str, Any]:
    """Returns the Trainer's settings of a step as flags. Raises :class:`VramlabError` for a setting that vramlab does not support."""
    if not module.automatic_optimization:
        raise VramlabError("vramlab does not support a training_step that calls the optimizer itself; `vramlab predict train.py` runs it")
    if len(trainer.optimizers) != 1:
        raise VramlabError(f"vramlab does not support {len(trainer.optimizers)} optimizers; `vramlab predict train.py` runs them")
    if trainer.world_size != 1:
        raise VramlabError(f"vramlab does not support {trainer.world_size} processes here; `vramlab predict train.py` runs them")
    if str(trainer.precision) not in _PRECISIONS:
        raise VramlabError(f"vramlab does not support precision {trainer.precision}; `vramlab predict train.py` runs it")
    clip = trainer.gradient_clip_val or None
    # The algorithm is an enumeration of strings; None stands for the norm.
    if clip is not None and trainer.gradient_clip_algorithm not in (None, "norm"):
        raise VramlabError("vramlab does not support clipping gradients by value; `vramlab predict train.py` runs it")
    return {
        "schedule": _SCHEDULE,
        "precision": _PRECISIONS[str(trainer.precision)],
        "accumulate": trainer.accumulate_grad_batches,
        "clip_grad_norm": clip,
    }


def _batch(trainer: Any) -> int:
    """Returns the number of examples in a batch of the loader. Raises :class:`VramlabError` if the loader does not have it."""
    size = getattr(trainer.train_dataloader, "batch_size", None)
    if not isinstance(size, int):
        raise VramlabError("the loader does not say how many examples a batch has: batch=")
    return size


def _as_it_trains(trainer: Any, example: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Returns positional and named arguments, on the device and in the type that Lightning gives a batch. The module is there already."""
    if example is None:
        raise VramlabError("an example of the inputs is needed: example=, or example_input_array in the module")
    moved = trainer.precision_plugin.convert_input(trainer.strategy.batch_to_device(example))
    if isinstance(moved, Mapping):
        return (), moved
    return (moved if isinstance(moved, tuple) else (moved,)), {}


class WatchCallback(Callback):  # type: ignore[misc, unused-ignore]
    """``Trainer(…, callbacks=[WatchCallback()])``: every logger of the Trainer writes the figures of :class:`vramlab.watch`.

    They come as often as the Trainer logs (``log_every_n_steps``). Arguments are those of :class:`vramlab.watch`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._watch = watch(**settings)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        self._watch.__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Called by Lightning after each batch."""
        if (batch_idx + 1) % trainer.log_every_n_steps == 0:
            for logger in trainer.loggers:
                logger.log_metrics(self._watch.figures(), step=trainer.global_step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Called by Lightning: if memory ran out, the answer is printed."""
        self._watch.__exit__(type(exception), exception, exception.__traceback__)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning."""
        self._watch.__exit__(None, None, None)
