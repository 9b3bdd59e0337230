"""What lives at the end of a step by purpose, from the tensors that modules and optimizers have: nothing is guessed."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

# PyTorch hands out multiples of this.
_ROUND = 512


class Kept:
    """The modules and optimizers of a training, held weakly."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._modules: weakref.WeakSet[Any] = weakref.WeakSet()
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._hook: Any = None

    def begin(self) -> None:
        """Notes each module that is called, until :meth:`end`: those of the first step are all."""
        from torch.nn.modules.module import register_module_forward_pre_hook

        seen = self._modules
        self._hook = register_module_forward_pre_hook(lambda module, _inputs: seen.add(module))

    def end(self) -> None:
        """Stops noting modules: calls cost nothing any more."""
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.remove()

    def add(self, optimizer: Any) -> None:
        """Notes an optimizer."""
        self._optimizers.add(optimizer)

    def by_category(self, device: int) -> dict[str, int]:
        """Bytes on a device by category. What two own counts once, for the first of them."""
        seen: set[int] = set()
        parameters = list(self._parameters())
        return {
            "parameter": self._bytes(parameters, device, seen),
            "buffer": self._bytes((one for module in self._modules for one in module._buffers.values()), device, seen),
            "gradient": self._bytes((one.grad for one in parameters if one is not None), device, seen),
            "optimizer_state": self._bytes(self._states(), device, seen),
        }

    def _parameters(self) -> Iterator[Any]:
        for module in list(self._modules):
            yield from module._parameters.values()
        for optimizer in list(self._optimizers):
            for group in optimizer.param_groups:
                yield from group["params"]

    def _states(self) -> Iterator[Any]:
        for optimizer in list(self._optimizers):
            for state in list(optimizer.state.values()):
                if isinstance(state, dict):
                    yield from state.values()

    def _bytes(self, tensors: Iterable[Any], device: int, seen: set[int]) -> int:
        total = 0
        for tensor in tensors:
            # A tensor of another library may have no storage of its own.
            with contextlib.suppress(Exception):
                # Of a DTensor, the part that is here.
                tensor = getattr(tensor, "_local_tensor", tensor)
                if not isinstance(tensor, self._torch.Tensor) or not tensor.is_cuda or tensor.device.index != device:
                    continue
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in seen:
                    seen.add(storage.data_ptr())
                    total += -(-storage.nbytes() // _ROUND) * _ROUND
        return total
