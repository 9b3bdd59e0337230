"""What is exported of code that is another while PyTorch traces it: masks that hide nothing, numbers that are written."""

from __future__ import annotations

import json
import sys
import tempfile
import types
import unittest
import zipfile
from pathlib import Path
from typing import Any

from common import HAS_TORCH

import vramlab

# As transformers asks.
CODE = """
import torch

def is_tracing(tensor):
    return torch.compiler.is_compiling()

def hidden(x, mask):
    if not is_tracing(mask) and mask.bool().all():
        return x
    return torch.where(mask[:, None].bool(), x, 0.0)
"""

# As transformers makes masks that are not only causal.
VMAP = """
import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

def is_tracing(tensor):
    return torch.compiler.is_compiling()

def _vmap_expansion_sdpa(function):
    for dims in [(None, None, 0), (None, 0, None), (0, None, None)]:
        function = torch.vmap(function, in_dims=dims, out_dims=0)
    return function

def mask(blocks):
    def seen(batch, query, key):
        return (key <= query) | (blocks[batch, query] == blocks[batch, key])

    batch, length = blocks.shape
    numbers = torch.arange(length, device=blocks.device)
    with TransformGetItemToIndex():
        return _vmap_expansion_sdpa(seen)(torch.arange(batch, device=blocks.device), numbers, numbers)
"""


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed")
class Masks(unittest.TestCase):
    def operators(self, mask: Any, code: str = CODE) -> list[str]:
        """The operators of the exported network, whose masks a module of transformers makes."""
        import torch

        library = types.ModuleType("transformers.masks_of_a_test")
        exec(code, library.__dict__)

        class Hidden(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any, mask: Any) -> Any:
                return torch.tanh(library.hidden(x, mask))

        sys.modules[library.__name__] = library
        self.addCleanup(sys.modules.pop, library.__name__)
        found = self.exported(Hidden(), torch.randn(2, 3), mask)
        self.assertTrue("is_tracing" not in library.__dict__ or library.is_tracing.__name__ == "is_tracing")
        return found

    def exported(self, network: Any, *args: Any, **kwargs: Any) -> list[str]:
        """The operators of an exported network."""
        with tempfile.TemporaryDirectory() as folder:
            path = vramlab.export(network, *args, path=Path(folder, "net.pt2"), **kwargs)
            with zipfile.ZipFile(path) as archive:
                entry = next(name for name in archive.namelist() if name.endswith("/models/model.json"))
                graph = json.loads(archive.read(entry))["graph_module"]["graph"]
        return [node["target"].split("aten.")[-1] for node in graph["nodes"]]

    def test_a_mask_that_hides_nothing_is_left_out(self) -> None:
        import torch

        found = self.operators(torch.ones(2))
        self.assertIn("all.default", found)
        self.assertNotIn("where.ScalarOther", found)

    def test_a_mask_that_hides_something_is_applied(self) -> None:
        import torch

        self.assertIn("where.ScalarOther", self.operators(torch.tensor([1.0, 0.0])))

    def test_a_mask_without_values_is_applied_as_while_tracing(self) -> None:
        import torch

        found = self.operators(torch.ones(2, device="meta"))
        self.assertIn("where.ScalarOther", found)
        self.assertNotIn("all.default", found)

    def test_a_mask_by_vmap_is_in_the_file_as_operators(self) -> None:
        import torch

        library = types.ModuleType("transformers.masking_utils")
        exec(VMAP, library.__dict__)
        before = sys.modules.get(library.__name__)
        sys.modules[library.__name__] = library
        try:

            class Masked(torch.nn.Module):  # type: ignore[misc]
                def forward(self, x: Any, blocks: Any) -> Any:
                    return x.masked_fill(library.mask(blocks), 0.0).sum(-1)

            found = self.exported(Masked(), torch.randn(2, 5, 5), torch.randint(3, (2, 5)))
        finally:
            if before is None:
                del sys.modules[library.__name__]
            else:
                sys.modules[library.__name__] = before
        self.assertTrue({"le.Tensor", "index.Tensor", "bitwise_or.Tensor"} <= set(found), found)

    def test_a_release_that_asks_otherwise_is_left_alone(self) -> None:
        import torch

        found = self.operators(torch.ones(2), CODE.replace("is_tracing", "is_traced_otherwise"))
        self.assertIn("where.ScalarOther", found)

    def test_a_number_is_written_without_a_tensor_of_it(self) -> None:
        import torch

        class Written(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                y = torch.zeros_like(x)
                y[:, 0] = 2
                return x + y

        for with_values in (False, True):
            found = self.exported(Written(), torch.randn(2, 3), with_values=with_values)
            self.assertEqual(
                [name for name in found if name != "sym_size.int"], ["zeros_like.default", "select.int", "fill_.Scalar", "add.Tensor"]
            )


if __name__ == "__main__":
    unittest.main()
