"""Tests of CTC in an export, if PyTorch is installed: PyTorch alone does not trace it."""

from __future__ import annotations

import json
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any

from common import HAS_TORCH

import vramlab


def operators(model: Any, *args: Any) -> list[str]:
    """The operators of an export."""
    with tempfile.TemporaryDirectory() as folder:
        path = vramlab.export(model, *args, path=Path(folder, "net.pt2"))
        with zipfile.ZipFile(path) as archive:
            entry = next(name for name in archive.namelist() if "/models/" in name)
            nodes = json.loads(archive.read(entry))["graph_module"]["graph"]["nodes"]
    return [node["target"].removeprefix("torch.ops.aten.") for node in nodes]


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Ctc(unittest.TestCase):
    def test_lengths_are_tensors_or_numbers(self) -> None:
        import torch

        class Loss(torch.nn.Module):  # type: ignore[misc]
            def __init__(self, lengths: Any) -> None:
                super().__init__()
                self.ctc, self.lengths = torch.nn.CTCLoss(), lengths

            def forward(self, x: Any, targets: Any) -> Any:
                steps = torch.full((x.size(0),), x.size(1), dtype=torch.long) if self.lengths is None else [x.size(1)] * 2
                lengths = torch.full((x.size(0),), targets.size(1), dtype=torch.long) if self.lengths is None else self.lengths
                return self.ctc(x.log_softmax(2).transpose(0, 1), targets, steps, lengths)

        given = torch.randn(2, 12, 5), torch.randint(1, 5, (2, 4))
        before = torch.ctc_loss
        for lengths, form in ((None, "ctc_loss.Tensor"), ([4, 3], "ctc_loss.IntList")):
            found = operators(Loss(lengths), *given)
            self.assertEqual(found[-1], form)
            self.assertFalse(any("vramlab" in name for name in found), found)
        self.assertIs(torch.ctc_loss, before)

    def test_a_recorded_call_has_it_too(self) -> None:
        import torch

        class Asks(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any, targets: Any) -> Any:
                probs = x.log_softmax(2).transpose(0, 1)
                if x.sum() < 1e9:
                    probs = probs * 1
                return torch.nn.functional.ctc_loss(probs, targets, [12, 12], [4, 4], reduction="sum")

        found = operators(Asks(), torch.randn(2, 12, 5), torch.randint(1, 5, (2, 4)))
        self.assertEqual(found[-2:], ["mul.Tensor", "ctc_loss.IntList"])


if __name__ == "__main__":
    unittest.main()
