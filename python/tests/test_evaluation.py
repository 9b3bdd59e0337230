"""Tests of an export's program under `eval()`, if PyTorch is installed."""

from __future__ import annotations

import json
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any, Optional

from common import HAS_TORCH

import vramlab


def evaluation(model: Any, *args: Any) -> Optional[dict[str, Any]]:
    """The entry that the package adds for an evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        path = vramlab.export(model, *args, path=Path(folder, "net.pt2"))
        with zipfile.ZipFile(path) as archive:
            found = [name for name in archive.namelist() if name.endswith("/extra/vramlab-evaluation.json")]
            return dict(json.loads(archive.read(found[0]))) if found else None


def operators(entry: dict[str, Any]) -> list[str]:
    return [node["target"].split(".")[-2] for node in entry["program"]["graph_module"]["graph"]["nodes"]]


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Evaluation(unittest.TestCase):
    def test_a_network_that_computes_otherwise_is_recorded_and_left_as_it_was(self) -> None:
        import torch

        class Branch(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return torch.sin(x) if self.training else torch.cos(x)

        model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(), Branch())
        frozen = model[0].eval()
        entry = evaluation(model.train(), torch.randn(2, 4))
        assert entry is not None
        self.assertEqual(operators(entry), ["batch_norm", "dropout", "cos"])
        self.assertEqual(entry["version"], 1)
        self.assertTrue(model.training and model[1].training and frozen.training)
        self.assertTrue(all(parameter.requires_grad for parameter in model.parameters()))
        model[0].eval()
        evaluation(model, torch.randn(2, 4))
        self.assertFalse(model[0].training, "a module that does not train goes on so")

    def test_a_network_that_computes_the_same_is_not_recorded_twice(self) -> None:
        import torch

        chain = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0), torch.nn.LayerNorm(4))
        self.assertIsNone(evaluation(torch.nn.Sequential(chain[0], chain[2]), torch.randn(2, 4)))
        self.assertIsNone(evaluation(torch.nn.Sequential(chain[0], torch.nn.Dropout()).eval(), torch.randn(2, 4)))

    def test_what_cannot_be_exported_is_said(self) -> None:
        import torch

        class Fails(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                if not self.training:
                    raise ValueError("not here")
                return torch.nn.functional.dropout(x)

        entry = evaluation(Fails(), torch.randn(2, 4))
        assert entry is not None
        self.assertIn("not here", entry["problem"])


if __name__ == "__main__":
    unittest.main()
