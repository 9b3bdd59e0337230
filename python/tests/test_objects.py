"""Tests of examples and results that are objects, and of sizes that an export leaves open, if PyTorch is installed."""

from __future__ import annotations

import collections
import dataclasses
import json
import tempfile
import unittest
import zipfile
from pathlib import Path
from typing import Any

from common import HAS_TORCH

import vramlab


@dataclasses.dataclass
class Batch:
    ids: Any
    labels: Any
    source: str = "made up"


class Mapped(dict):  # type: ignore[type-arg]
    """A dictionary of a class that PyTorch does not know."""


class Result:
    """What a network returns, with something that is no tensor."""

    def __init__(self, loss: Any, scores: Any) -> None:
        self.loss, self.scores, self.note = loss, scores, object()


def inputs(*args: Any, **kwargs: Any) -> dict[str, list[Any]]:
    """The sizes of the inputs of an export: numbers, or None where they are open."""
    with tempfile.TemporaryDirectory() as folder:
        path = vramlab.export(*args, path=Path(folder, "net.pt2"), **kwargs)
        with zipfile.ZipFile(path) as archive:
            entry = next(name for name in archive.namelist() if name.endswith("models/model.json"))
            module = json.loads(archive.read(entry))["graph_module"]
    names = [spec["user_input"]["arg"]["as_tensor"]["name"] for spec in module["signature"]["input_specs"] if "user_input" in spec]
    return {name: [size.get("as_int") for size in module["graph"]["tensor_values"][name]["sizes"]] for name in names}


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Objects(unittest.TestCase):
    def test_objects_and_mappings_are_taken_and_returned(self) -> None:
        import torch

        class Net(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.table, self.head = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)

            def forward(self, batch: Any) -> Any:
                ids, labels = (batch.ids, batch.labels) if isinstance(batch, Batch) else (batch["ids"], batch["labels"])
                scores = self.head(self.table(ids))
                loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
                return Result(loss, scores) if isinstance(batch, Batch) else (loss, (scores, {"again": scores}))

        ids = torch.randint(50, (2, 20))
        parts = {"ids": ids, "labels": ids}
        for batch in (Batch(ids, ids), parts, collections.UserDict(parts), Mapped(parts)):
            self.assertEqual(inputs(Net(), batch), {"batch_ids": [None, None], "batch_labels": [None, None]})

    def test_a_length_that_the_code_fixes_is_fixed(self) -> None:
        import torch

        class Net(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.places = torch.nn.Parameter(torch.zeros(20, 8))
                self.table = torch.nn.Embedding(50, 8)

            def forward(self, ids: Any) -> Any:
                return (self.table(ids) + self.places).mean()

        self.assertEqual(inputs(Net(), torch.randint(50, (2, 20))), {"ids": [None, 20]})
