"""Tests of the callback in trainings with Lightning, if it is installed; its figures are compared with a rehearsal's."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

from common import HAS_TORCH

import vramlab

HAS_LIGHTNING = HAS_TORCH and any(importlib.util.find_spec(name) for name in ("lightning", "pytorch_lightning"))

REHEARSED = """
import sys
sys.path[:0] = {path!r}
import torch
from test_lightning import fit, network
from vramlab.lightning import VramCallback
class Said(VramCallback):
    def _asked(self, *words):
        found = super()._asked(*words)
        print("predicted", found.reserved, found.peak)
        return found
said = Said(loss="cross-entropy", gpu="rtx4090")
fit(network(2048), said, size=1024, accelerator="gpu", devices=1, **{settings!r})
print("measured", torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated())
"""


def framework() -> Any:
    """The one of both packages that the callback takes."""
    return importlib.import_module("lightning.pytorch" if importlib.util.find_spec("lightning") else "pytorch_lightning")


def network(width: int = 256, manual: bool = False) -> Any:
    import torch

    class Net(framework().LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
            self.example_input_array = torch.randn(2, 64)
            self.automatic_optimization = not manual

        def forward(self, x: Any) -> Any:
            return self.layers(x)

        def training_step(self, batch: Any, index: int) -> Any:
            x, y = batch
            return torch.nn.functional.cross_entropy(self(x), y)

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    return Net()


def fit(module: Any, callback: Any, size: int = 16, **settings: Any) -> str:
    """Trains on four batches; returns what was said on standard error."""
    import torch

    data = torch.utils.data.TensorDataset(torch.randn(4 * size, 64), torch.randint(10, (4 * size,)))
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    said = io.StringIO()
    with contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = framework().Trainer(max_epochs=1, callbacks=[callback], **quiet, **{"accelerator": "cpu", **settings})
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=size))
    if trainer.global_step == 0:
        raise AssertionError("nothing was trained")
    return said.getvalue()


@unittest.skipUnless(HAS_LIGHTNING, "Lightning is not installed")
class Callback(unittest.TestCase):
    def callback(self, **settings: Any) -> Any:
        from vramlab.lightning import VramCallback

        return VramCallback(**{"loss": "cross-entropy", "gpu": "rtx4090", **settings})

    def test_a_training_begins_with_the_answer(self) -> None:
        said = fit(network(), self.callback(), accumulate_grad_batches=2)
        self.assertIn("Yes", said)
        self.assertIn("batch 16, 2 micro-batches", " ".join(said.split()))
        self.assertIn("adamw", said)

    def test_arguments_can_be_named(self) -> None:
        import torch

        said = fit(network(), self.callback(batch=64, example={"x": torch.randn(2, 64)}), precision="bf16-true")
        self.assertIn("batch 64, bfloat16", " ".join(said.split()))

    def test_what_must_fit_and_does_not_ends_the_training(self) -> None:
        with self.assertRaises(vramlab.DoesNotFit):
            fit(network(), self.callback(gpu="1MiB", must_fit=True))

    def test_what_is_not_represented_is_said_and_the_training_goes_on(self) -> None:
        by_value: dict[str, Any] = {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"}
        self.assertIn("is not known: clipping gradients by value", fit(network(), self.callback(), **by_value))

    def test_who_steps_by_hand_is_refused(self) -> None:
        from vramlab.lightning import _settings

        with self.assertRaisesRegex(vramlab.VramlabError, "calls the optimizer itself"):
            _settings(None, network(manual=True))

    def test_every_logger_writes_a_watched_trainings_figures(self) -> None:
        from vramlab.lightning import WatchCallback

        callback, logger = WatchCallback(), mock.Mock()
        trainer: Any = types.SimpleNamespace(log_every_n_steps=2, loggers=[logger], global_step=7)
        with mock.patch.object(callback._watch, "figures", return_value={"vramlab/peak": 5}):
            for batch in range(4):
                callback.on_train_batch_end(trainer, None, None, None, batch)
        self.assertEqual(logger.log_metrics.call_args_list, 2 * [mock.call({"vramlab/peak": 5}, step=7)])

    def test_a_training_on_a_card_takes_what_was_said(self) -> None:
        import torch

        if sys.platform != "linux" or not torch.backends.cuda.is_built():
            self.skipTest("PyTorch is not built for CUDA")
        path = [str(Path(__file__).parent), *sys.path]
        for settings in ({}, {"precision": "bf16-mixed", "accumulate_grad_batches": 2, "gradient_clip_val": 1.0}):
            with self.subTest(settings=settings), tempfile.TemporaryDirectory() as folder:
                script = Path(folder, "script.py")
                script.write_text(REHEARSED.format(path=path, settings=settings), encoding="utf-8")
                words = ["rehearse", "--no-needs", "--steps", "9", "--gpu", "rtx4090", "--", sys.executable, str(script)]
                environment = {"VRAMLAB_BINARY": str(vramlab.binary()), "PATH": "/usr/bin:/bin", "HOME": folder}
                done = subprocess.run(
                    [str(vramlab.binary()), *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
                )
                lines = [line.split() for line in (done.stdout + done.stderr).splitlines()]
                found = {line[0]: [int(word) for word in line[1:]] for line in lines if line and line[0] in ("predicted", "measured")}
                self.assertEqual(set(found), {"predicted", "measured"}, done.stdout + done.stderr)
                self.assertEqual(found["predicted"][0], found["measured"][0])
                # A copy of the loss is Lightning's own.
                self.assertEqual(found["predicted"][1] + 512, found["measured"][1])


if __name__ == "__main__":
    unittest.main()
