"""Tests of the package with the program, without PyTorch."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from common import OutOfMemoryError, config, torch_with, unpacked

import vramlab
from vramlab._binary import VARIABLE, flags, problem
from vramlab._optimizer import flags_of


class InAFolder(unittest.TestCase):
    def setUp(self) -> None:
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = Path(held.name)


class Predictions(InAFolder):
    def test_what_fits(self) -> None:
        found = vramlab.predict(config(self.folder), batch=2, sequence=128, gpu="rtx4090")
        self.assertIs(found.fits, True)
        self.assertEqual(found.missing, 0)
        self.assertEqual(found.peak, found.json["needs"]["allocated_bytes"])
        self.assertEqual(found.peak, sum(found.by_category.values()))
        self.assertLessEqual(found.peak, found.reserved)
        self.assertEqual(found.premises["batch"], "batch 2")
        sentence = dict(found.json)["sentence"]
        self.assertTrue(str(sentence).startswith("Yes: ") and len(str(sentence)) > 80, sentence)
        self.assertEqual((found.sentence, repr(found)), (sentence, f"<vramlab: {sentence}>"))
        self.assertIn(f"<strong>{sentence}</strong>", found._repr_html_())

    def test_what_does_not_fit_says_what_would(self) -> None:
        found = vramlab.predict("gpt2", batch=64, gpu="rtx4090")
        self.assertIs(found.fits, False)
        assert found.budget is not None
        self.assertEqual(found.missing, found.json["needs"]["missing_bytes"])
        change = found.try_[0]
        assert change.reserved is not None and change.command is not None
        self.assertTrue(change.checked)
        self.assertLess(change.reserved, found.budget)
        self.assertTrue(change.command.startswith("vramlab predict"))
        page = found._repr_html_()
        self.assertIn("activation: ", page)
        self.assertIn("the card: 23.02 GiB", page)

    def test_a_name_with_a_dot_is_a_name(self) -> None:
        found = vramlab.predict("llama-3.2-1b", batch=1, sequence=128, gpu="rtx4090")
        self.assertEqual((found.fits, found.premises["batch"]), (True, "batch 1"))
        largest = vramlab.fit("llama-3.2-1b", sequence=2048, gpu="rtx4090").largest
        self.assertEqual(largest, 2)

    def test_errors_have_the_names_of_keywords(self) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"batch": 0}, "batch: must be at least 1"),
            ({"bach": 4}, "similar argument exists: 'batch'"),
            ({"gpu": "rtx409"}, "for 'gpu': vramlab knows no card of this name"),
        ]
        for given, said in cases:
            with self.assertRaises(vramlab.VramlabError) as raised:
                vramlab.predict("mlp", **given)
            self.assertIn(said, str(raised.exception))
            self.assertNotIn("--", str(raised.exception))
        message = "not built in: --lora (x)\nerror: no; instead: vramlab predict a.py --script\n\nFor help: vramlab predict -h"
        self.assertEqual(problem(message), "no; instead: vramlab predict a.py --script\nnot built in: lora (x)")
        of_a_script = (
            "a.py: error: unrecognized arguments: --lr\nwarning: the script asked: MNIST\nerror: the script failed with exit code 2"
        )
        self.assertEqual(problem(of_a_script), "the script failed with exit code 2\nwarning: the script asked: MNIST")

    def test_a_rehearsal_has_its_figures(self) -> None:
        def shares(count: int) -> dict[str, int]:
            return {"parameter": count, "optimizer": 2 * count}

        ranks = [{"peak_allocated": 3 * n, "peak_reserved": 4 * n, "by_category": shares(n)} for n in (1, 2)]
        of_it: Any = {"fits": True, "gpu": {"total_bytes": 100, "context_bytes": 10}, "ranks": ranks}
        found = vramlab.Rehearsal("Yes: it fits\n", of_it)
        self.assertEqual((found.peak, found.reserved, found.missing, found.budget), (6, 8, 0, 90))
        self.assertEqual(found.by_category, {"parameter": 2, "optimizer_state": 4})
        of_it["with_memory_enough"] = {"peak_allocated": 200, "peak_reserved": 300, "missing": 210, "by_category": shares(60)}
        self.assertEqual((found.peak, found.reserved, found.missing), (200, 300, 210))
        self.assertIn("parameter: 60 B", found._repr_html_())

    def test_a_batch_takes_more_than_a_smaller_one(self) -> None:
        small, large = (vramlab.predict("mlp", batch=batch) for batch in (8, 4096))
        self.assertIsNone(small.fits)
        self.assertLess(small.peak, large.peak)

    def test_an_export(self) -> None:
        path = unpacked("lab/imports/tests/golden/exported/nanogpt.pt2", self.folder)
        found = vramlab.predict(path, batch=16, optimizer="adamw", gpu="24GiB")
        self.assertEqual(found.json["settings"]["batch"], 16)

    def test_nothing_of_a_file_becomes_markup(self) -> None:
        folder = self.folder / "<img src=x>"
        folder.mkdir()
        page = vramlab.predict(config(folder), batch=1, sequence=8, gpu="24GiB")._repr_html_()
        self.assertNotIn("<img", page)

    def test_the_largest_batch(self) -> None:
        found = vramlab.fit("gpt2", gpu="rtx4090")
        self.assertIn(f"<strong>{found.sentence}</strong>", found._repr_html_())
        assert found.largest is not None
        fits = [vramlab.predict("gpt2", batch=batch, gpu="rtx4090").fits for batch in (found.largest, found.largest + 1)]
        self.assertEqual(fits, [True, False])

    def test_what_is_not_represented_is_an_error_with_the_programs_words(self) -> None:
        with self.assertRaisesRegex(vramlab.VramlabError, "nosuch") as raised:
            vramlab.predict("mlp", nosuch=1)
        self.assertEqual(raised.exception.code, 2)
        with self.assertRaisesRegex(vramlab.VramlabError, "no such file|No such file"):
            vramlab.predict("missing.pt2")
        with self.assertRaisesRegex(vramlab.VramlabError, "example of its inputs"):
            vramlab.predict(object())


class Words(unittest.TestCase):
    def test_settings_are_flags(self) -> None:
        given = {"clip_grad_norm": 1.0, "tied": True, "nesterov": False, "batch": None, "env": ["A=1", "B=2"]}
        self.assertEqual(flags(given), ["--clip-grad-norm=1.0", "--tied", "--env=A=1", "--env=B=2"])

    def test_an_optimizer_is_flags_or_refused(self) -> None:
        def optimizer(name: str, groups: int = 1, **options: Any) -> Any:
            kind = type(name, (), {"__module__": "torch.optim." + name.lower()})
            made = kind()
            made.param_groups = [{"lr": 0.1, "weight_decay": 0.0, **options} for _ in range(groups)]
            return made

        base = {"lr": 0.1, "weight_decay": 0.0}
        self.assertEqual(flags_of("adamw"), {"optimizer": "adamw"})
        self.assertEqual(flags_of(optimizer("AdamW", fused=True)), {**base, "optimizer": "adamw", "optimizer_impl": "fused"})
        self.assertEqual(flags_of(optimizer("SGD", momentum=0.9)), {**base, "optimizer": "momentum"})
        self.assertEqual(flags_of(optimizer("Adam", foreach=False)), {**base, "optimizer": "adam", "optimizer_impl": "loop"})
        for refused in (optimizer("LBFGS"), optimizer("Adam", groups=2), optimizer("RMSprop", centered=True, momentum=0.5), object()):
            with self.assertRaises(vramlab.VramlabError):
                flags_of(refused)

    def test_the_program_that_the_environment_names_is_taken(self) -> None:
        with (
            mock.patch.dict(os.environ, {VARIABLE: "/nowhere/vramlab"}),
            self.assertRaisesRegex(vramlab.VramlabError, "/nowhere/vramlab: no such file"),
        ):
            vramlab.binary()


def modules(torch: Any) -> dict[str, Any]:
    """The modules of a PyTorch that is not there; none is what Python finds for `None`."""
    return {"torch": torch, **getattr(torch, "submodules", {})}


class Estimates(InAFolder):
    def test_parts_add_up_and_problems_are_exceptions(self) -> None:
        found = vramlab.estimate(config(self.folder), batch=2, sequence=64, gpu="rtx4090", optimizer="adamw")
        self.assertEqual(sum(part["upper_bytes"] for part in found["by_category"].values()), found["upper_bytes"])
        self.assertIs(found["fits"], True)
        with self.assertRaisesRegex(vramlab.VramlabError, "neither a file"):
            vramlab.estimate("no-such-network")
        with (
            mock.patch.dict(os.environ, {"VRAMLAB_LIBRARY": "/nowhere/lib.so"}),
            self.assertRaisesRegex(vramlab.VramlabError, "no such file"),
        ):
            vramlab.estimate("gpt2")


class Explanations(InAFolder):
    MESSAGE = (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.53 GiB of which 1.28 GiB is free. "
        "Including non-PyTorch memory, this process has 22.24 GiB memory in use. Of the allocated memory 21.00 GiB is allocated by "
        "PyTorch, and 800.00 MiB is reserved by PyTorch but unallocated."
    )

    def test_an_exception_is_explained(self) -> None:
        found = vramlab.explain(OutOfMemoryError(self.MESSAGE))
        self.assertEqual(found.verdict, found.json["verdict"])
        self.assertIn("2.00 GiB", found.reason)
        self.assertTrue(found.advice)

    def test_another_exception_is_not(self) -> None:
        with self.assertRaises(vramlab.VramlabError):
            vramlab.explain(ValueError("expected a tensor"))

    def test_a_watched_training_that_runs_out_leaves_a_snapshot_and_the_answer(self) -> None:
        torch = torch_with(unpacked("lab/traces/tests/golden/recordings/unet_oom.pickle", self.folder))
        said: list[str] = []
        path = self.folder / "oom.pickle"
        with mock.patch.dict(sys.modules, modules(torch)), self.assertRaisesRegex(OutOfMemoryError, "GiB"):
            with vramlab.watch(path, tell=said.append):
                raise OutOfMemoryError(self.MESSAGE)
        self.assertTrue(path.is_file())
        self.assertIn("train.py:21 forward", said[0])
        self.assertIn(str(path), said[-1])
        self.assertEqual([call for call, _ in torch.cuda.memory.calls], ["record", "dump", "record"])

    def test_another_failure_leaves_nothing(self) -> None:
        torch = torch_with(self.folder / "none")
        said: list[str] = []
        with mock.patch.dict(sys.modules, modules(torch)), self.assertRaises(KeyError):
            with vramlab.watch(self.folder / "oom.pickle", tell=said.append):
                raise KeyError("loss")
        self.assertEqual((said, list(self.folder.iterdir())), ([], []))

    def test_a_failure_that_running_out_led_to_is_one(self) -> None:
        torch = torch_with(self.folder / "none")
        said: list[str] = []
        with mock.patch.dict(sys.modules, modules(torch)), self.assertRaises(RuntimeError):
            with vramlab.watch(self.folder / "oom.pickle", tell=said.append):
                raise RuntimeError("worker failed") from OutOfMemoryError(self.MESSAGE)
        # The snapshot could not be written: the message is explained instead.
        self.assertIn("could not be written", said[0])
        self.assertIn("2.00 GiB", said[1])

    def test_without_pytorch_or_a_card_there_is_no_effect_and_it_is_said(self) -> None:
        for torch, why in ((None, "PyTorch is not installed"), (torch_with(self.folder, available=False), "no CUDA device")):
            said: list[str] = []
            with mock.patch.dict(sys.modules, modules(torch)), vramlab.watch(tell=said.append):
                pass
            self.assertEqual(len(said), 1)
            self.assertIn(why, said[0])


if __name__ == "__main__":
    unittest.main()
