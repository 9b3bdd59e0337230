"""What the tests share: the repository's recordings, and a PyTorch that is not there."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import json
import shutil
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_TRANSFORMERS = HAS_TORCH and importlib.util.find_spec("transformers") is not None

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.3",
}


def config(folder: Path, **changed: Any) -> Path:
    """A `config.json` of a small network."""
    path = folder / "config.json"
    path.write_text(json.dumps({**LLAMA, **changed}), encoding="utf-8")
    return path


def unpacked(recording: str, folder: Path) -> Path:
    """A recording of the repository, by its path there, unpacked."""
    path = folder / Path(recording).name
    with gzip.open(ROOT / f"{recording}.gz") as packed, path.open("wb") as out:
        shutil.copyfileobj(packed, out)
    return path


class OutOfMemoryError(RuntimeError):
    """As PyTorch's."""


class Memory:
    """`torch.cuda.memory`: what was called, and a recorded snapshot instead of a real one."""

    def __init__(self, snapshot: Path) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._snapshot = snapshot

    def _record_memory_history(self, enabled: Any = "all", max_entries: int = 0, **_how: Any) -> None:
        self.calls.append(("record", enabled if max_entries == 0 else max_entries))

    def _dump_snapshot(self, path: str) -> None:
        self.calls.append(("dump", path))
        shutil.copy(self._snapshot, path)


class Counters:
    """What `torch.cuda.memory_stats_as_nested_dict` reads."""

    allocated = peak = made = 0

    def nested(self, _device: int) -> dict[str, Any]:
        allocated = {"all": {"current": self.allocated, "peak": self.peak}}
        made = {"all": {"allocated": self.made}}
        return {"allocated_bytes": allocated, "reserved_bytes": allocated, "allocation": made}


def torch_with(snapshot: Path, available: bool = True) -> Any:
    """A module `torch` with as much of it as a watched training meets. `submodules` are those that are imported by name."""
    torch: Any = types.ModuleType("torch")
    torch.counters, torch.hooks, torch.observers = Counters(), [], []

    def register(hook: Any) -> Any:
        torch.hooks.append(hook)
        return types.SimpleNamespace(remove=lambda: torch.hooks.remove(hook))

    optimizer: Any = types.ModuleType("torch.optim.optimizer")
    optimizer.register_optimizer_step_post_hook = register
    module: Any = types.ModuleType("torch.nn.modules.module")
    module.register_module_forward_pre_hook = lambda hook: types.SimpleNamespace(remove=lambda: None)
    torch.submodules = {"torch.optim.optimizer": optimizer, "torch.nn.modules.module": module}
    torch.__version__ = "2.11.0"
    torch.Tensor = type("Tensor", (), {})
    torch._C = types.SimpleNamespace(
        DisableTorchFunction=contextlib.nullcontext, _cuda_attach_out_of_memory_observer=torch.observers.append
    )
    torch.cuda = types.SimpleNamespace(
        is_available=lambda: available,
        memory=Memory(snapshot),
        OutOfMemoryError=OutOfMemoryError,
        memory_stats_as_nested_dict=torch.counters.nested,
        mem_get_info=lambda _device: (1 << 30, 1 << 31),
        get_device_name=lambda _device: "NVIDIA T4",
        _lazy_call=lambda begin: begin(),
    )
    return torch
