"""Tests of an export's further entry, if PyTorch is installed: lifetimes of values, tied parameters, the recorded release."""

from __future__ import annotations

import json
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any

from common import HAS_TORCH

import vramlab


def beside(model: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The entry that the package adds to an export's graph."""
    with tempfile.TemporaryDirectory() as folder:
        path = vramlab.export(model, *args, path=Path(folder, "net.pt2"), **kwargs)
        with zipfile.ZipFile(path) as archive:
            entry = next(name for name in archive.namelist() if name.endswith("/extra/vramlab.json"))
            return dict(json.loads(archive.read(entry)))


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Lifetimes(unittest.TestCase):
    def test_a_name_keeps_its_value_until_it_is_bound_again(self) -> None:
        import torch

        class Held(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                kept = torch.sin(x)
                y = torch.exp(kept)
                y = torch.cos(y)
                kept = torch.tanh(y)
                return torch.sqrt(kept)

        entry = beside(Held(), torch.randn(2, 3))
        self.assertEqual(entry, {"version": 1, "tied": [], "dies_after": [["sin", "tanh"], ["cos", "sqrt"]]})

    def test_modules_of_buffers_alone_are_named_with_the_module_that_follows(self) -> None:
        import torch

        class Table(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("table", torch.ones(3))

            def forward(self, x: Any) -> Any:
                return x * self.table

        class Layer(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second, self.linear, self.last = Table(), Table(), torch.nn.Linear(3, 3), Table()

            def forward(self, x: Any) -> Any:
                return self.last(self.linear(self.second(self.first(x))))

        network = torch.nn.ModuleDict({"layers": torch.nn.Sequential(Layer(), Layer())})
        network.forward = lambda x: network["layers"](x)
        pairs = [["layers.*.second", "layers.*.linear"], ["layers.*.first", "layers.*.second"]]
        self.assertEqual(beside(network, torch.randn(2, 3))["moved_before"], pairs)

    def test_what_dies_with_its_last_use_is_not_named(self) -> None:
        import torch

        chain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
        self.assertEqual(beside(chain, torch.randn(2, 3))["dies_after"], [])

    def test_values_of_a_region_without_gradients_are_named_there(self) -> None:
        import torch

        class Region(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                with torch.no_grad():
                    a = torch.sin(x)
                    b = torch.exp(a)
                    c = torch.cos(b)
                return torch.tanh(c) * x

        # The result of the region has another name in the graph around it.
        self.assertEqual(beside(Region(), torch.randn(2, 3))["dies_after"], [["sin", "cos"], ["getitem", "mul"]])

    def test_a_name_of_two_graphs_is_told_with_its_region(self) -> None:
        import torch

        class Twice(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                with torch.no_grad():
                    a, b = torch.split(x, [1, 1], dim=-1)
                    c = torch.cos(b) + torch.sin(a)
                return torch.tanh(c) * x

        # The result of the region is called getitem in the graph around it, like the first part of the split inside.
        deaths = [["getitem", "add", "submod_1"], ["getitem_1", "add"], ["getitem", "mul", ""]]
        self.assertEqual(beside(Twice(), torch.randn(2, 2))["dies_after"], deaths)

    def test_tied_parameters_are_named(self) -> None:
        import torch

        class Tied(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.table, self.head = torch.nn.Embedding(7, 3), torch.nn.Linear(3, 7, bias=False)
                self.head.weight = self.table.weight

            def forward(self, x: Any) -> Any:
                return self.head(self.table(x))

        self.assertEqual(beside(Tied(), torch.zeros(2, 3, dtype=torch.long))["tied"], [["table.weight", "head.weight"]])


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Recorded(unittest.TestCase):
    def network(self) -> Any:
        import torch

        class Branches(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.inside, self.norm, self.out = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)

            def forward(self, x: Any) -> Any:
                h = self.norm(self.inside(x))
                if h.sum() > -1e9:
                    y = torch.relu(h)
                return self.out(y)

        return Branches().train()

    def test_a_network_that_asks_for_values_is_recorded(self) -> None:
        import torch

        network = self.network()
        before = {name: value.clone() for name, value in network.state_dict().items()}
        entry = beside(network, torch.randn(4, 8))
        self.assertIs(entry["recorded"], True)
        self.assertEqual(entry["dies_after"], [["batch_norm", "linear_1"]])
        for name, value in network.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertNotIn("forward", vars(network))

    def test_checks_that_pytorch_adds_do_not_end_the_lifetimes(self) -> None:
        import torch

        class Held(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                if x.sum() > 1e9:
                    x = torch.relu(x)
                x = torch.sin(x).to(torch.float32)
                kept = torch.exp(x)
                y = torch.cos(kept)
                return torch.tanh(torch.tan(y))

        self.assertIn(["exp", "tanh"], beside(Held(), torch.randn(4, 8))["dies_after"])

    def test_its_batch_is_fixed_and_the_answer_says_so(self) -> None:
        import torch

        found = vramlab.predict(self.network(), torch.randn(4, 8), batch=4, optimizer="adamw", gpu="rtx4090")
        self.assertIs(found.fits, True)
        with self.assertRaisesRegex(vramlab.VramlabError, "recorded with a batch of 4"):
            vramlab.predict(self.network(), torch.randn(4, 8), batch=8)

    def test_what_cannot_be_called_says_why(self) -> None:
        import torch

        class Broken(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return x.reshape(5, 7, 11)

        with self.assertRaisesRegex(vramlab.VramlabError, "Broken"):
            vramlab.export(Broken(), torch.randn(2, 3), path="never.pt2")


if __name__ == "__main__":
    unittest.main()
