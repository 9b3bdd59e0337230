"""Tests of the package with PyTorch, if it is installed: exports, models of transformers, callbacks, a watched rehearsal."""

from __future__ import annotations

import ast
import contextlib
import io
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from common import HAS_TORCH, HAS_TRANSFORMERS, ROOT

import vramlab

WATCHED = """
import sys, torch, vramlab
network = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(network.parameters())
def train(held):
    for _ in range(24):
        network(torch.randn(8, 256, device="cuda")).sum().backward()
        optimizer.step()
        held.append(torch.empty(1024, device="cuda"))
    print(watched.figures())
    print("peak", torch.cuda.max_memory_allocated())
    held.extend(torch.empty(256, 1024, 1024, device="cuda") for _ in range(13))
with vramlab.watch(tell=print) as watched:
    train([])
"""


def module() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Modules(unittest.TestCase):
    def test_a_module_is_predicted_at_other_batches_than_the_examples(self) -> None:
        import torch

        small, large = (vramlab.predict(module(), torch.randn(2, 64), batch=n, optimizer="adamw", gpu="rtx4090") for n in (8, 8192))
        self.assertIs(small.fits, True)
        values = 64 * 256 + 256 + 256 * 10 + 10
        self.assertLess(abs(small.by_category["parameter"] - 4 * values), 4 * 512)
        self.assertEqual(small.by_category["parameter"], large.by_category["parameter"])
        self.assertLess(small.peak, large.peak)

    def test_an_operator_of_several_names_is_the_one_that_the_program_knows(self) -> None:
        import torch

        class Joined(torch.nn.Module):  # type: ignore[misc]
            def __init__(self, join: Any) -> None:
                super().__init__()
                self.layer, self.join = torch.nn.Linear(64, 64), join

            def forward(self, x: Any) -> Any:
                return self.join([self.layer(x), x], dim=-1)

        first, second = (vramlab.predict(Joined(join), torch.randn(2, 64), batch=8) for join in (torch.cat, torch.concatenate))
        self.assertEqual(first.peak, second.peak)

    def test_a_mask_that_becomes_weights_needs_what_a_sum_does(self) -> None:
        import torch

        class Weighted(torch.nn.Module):  # type: ignore[misc]
            def __init__(self, factor: float) -> None:
                super().__init__()
                self.layer, self.factor = torch.nn.Linear(64, 64), factor

            def forward(self, x: Any) -> Any:
                return self.layer(x) * torch.add(0.3333, x > 0, alpha=self.factor)

        weighted, plain = (vramlab.predict(Weighted(factor), torch.randn(2, 64), batch=8) for factor in (0.6667, 1))
        self.assertEqual(weighted.peak, plain.peak)

    def test_an_optimizer_is_taken_as_it_is(self) -> None:
        import torch

        network = module()
        plain = torch.optim.SGD(network.parameters(), lr=0.1)
        adam = torch.optim.AdamW(network.parameters(), fused=True)
        found = [vramlab.predict(network, torch.randn(2, 64), batch=8, optimizer=one) for one in (plain, adam)]
        self.assertEqual([one.json["settings"]["optimizer"] for one in found], ["sgd", "adamw"])
        self.assertEqual(found[1].json["settings"]["optimizer-impl"], "fused")
        self.assertEqual(found[0].by_category["optimizer_state"], 0)


@unittest.skipUnless(HAS_TRANSFORMERS, "transformers is not installed")
class Models(unittest.TestCase):
    def model(self, **changed: Any) -> Any:
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=500, **changed)
        return LlamaForCausalLM(config)

    def test_a_model_is_predicted_by_its_configuration(self) -> None:
        model = self.model()
        found = vramlab.predict(model, batch=2, sequence=32, optimizer="adamw", gpu="rtx4090")
        held = sum(parameter.numel() * 4 for parameter in model.parameters())
        self.assertLess(abs(found.by_category["parameter"] - held), 512 * len(list(model.parameters())))
        self.assertEqual(found.premises["precision"].split()[0], "float32")

    def test_a_model_that_was_changed_is_refused(self) -> None:
        from torch import nn

        model = self.model()
        model.lm_head = nn.Linear(64, 777, bias=False)
        with self.assertRaisesRegex(vramlab.VramlabError, "changed after it was made"):
            vramlab.predict(model, batch=2, sequence=32)
        frozen = self.model()
        next(frozen.parameters()).requires_grad_(False)
        with self.assertRaisesRegex(vramlab.VramlabError, "not trained"):
            vramlab.predict(frozen, batch=2, sequence=32)

    def test_the_trainers_logs_have_a_watched_trainings_figures(self) -> None:
        from vramlab.transformers import watch_trainer

        trainer = types.SimpleNamespace(callback_handler=types.SimpleNamespace(callbacks=["the logger's"]))
        callback = watch_trainer(trainer)
        self.assertIs(trainer.callback_handler.callbacks[0], callback)
        logs, state = {"loss": 1.0}, types.SimpleNamespace(log_history=[{"loss": 1.0}])
        with mock.patch.object(callback._watch, "figures", return_value={"vramlab/peak": 5}):
            callback.on_log(None, state, None, logs=logs)
        self.assertEqual((logs["vramlab/peak"], state.log_history[-1]["vramlab/peak"]), (5, 5))

    def test_the_trainers_callback_answers_before_the_first_step(self) -> None:
        from transformers import TrainingArguments

        from vramlab.transformers import VramCallback

        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, bf16=True, use_cpu=True)
        state = types.SimpleNamespace(is_world_process_zero=True)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            VramCallback(sequence=32, gpu="rtx4090").on_train_begin(arguments, state, None, model=self.model())
        self.assertIn("Yes", said.getvalue())
        self.assertIn("batch 4", said.getvalue())
        self.assertIn("autocast", said.getvalue())
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(vramlab.DoesNotFit):
            VramCallback(sequence=32, gpu="16MiB", must_fit=True).on_train_begin(arguments, state, None, model=self.model())


@unittest.skipUnless(HAS_TORCH and sys.platform == "linux", "PyTorch is not installed")
class Watched(unittest.TestCase):
    def test_a_rehearsal_that_runs_out_prints_who_held_the_memory(self) -> None:
        import torch

        if not torch.backends.cuda.is_built():
            self.skipTest("PyTorch is not built for CUDA")
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "script.py")
            script.write_text(WATCHED, encoding="utf-8")
            words = [
                str(vramlab.binary()),
                "rehearse",
                "--no-needs",
                "--steps",
                "99",
                "--gpu",
                "rtx3060",
                "--",
                sys.executable,
                str(script),
            ]
            environment = {"PYTHONPATH": str(ROOT / "python"), "VRAMLAB_BINARY": str(vramlab.binary()), "PATH": "/usr/bin:/bin"}
            done = subprocess.run(words, cwd=folder, env={**environment, "HOME": folder}, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        self.assertIn("vramlab-oom.pickle: out of memory, the card was full", said)
        self.assertIn("script.py:12", said.partition("Held then, by line of the program")[2])
        line = next(line for line in said.splitlines() if line.startswith("{"))
        figures = ast.literal_eval(line)
        parameters = 4 * (256 * 256 + 256)
        self.assertEqual(figures["vramlab/parameter"], parameters)
        self.assertEqual(figures["vramlab/gradient"], parameters)
        # Two counts of steps on the card would be two more blocks.
        self.assertEqual(figures["vramlab/optimizer_state"], 2 * parameters)
        self.assertEqual(figures["vramlab/growth_per_step"], 4096)
        self.assertIn(f"peak {figures['vramlab/peak']}", said)


if __name__ == "__main__":
    unittest.main()
