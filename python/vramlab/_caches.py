"""The caches that networks of transformers return beside their results, as parts that `torch.export` knows."""

from __future__ import annotations

import sys
from typing import Any


def know_caches() -> None:
    """Tells PyTorch what the caches of transformers consist of, if it is in use: a script keeps them with the network's result."""
    if "transformers" not in sys.modules:
        return
    import torch

    try:
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache
        from transformers.integrations.executorch import register_dynamic_cache_export_support
    except ImportError:
        # A release without them; what it returns is said by torch.export.
        return
    known = torch.utils._pytree.SUPPORTED_NODES
    if DynamicCache not in known and not know_windows(torch, DynamicCache):
        register_dynamic_cache_export_support()
    if EncoderDecoderCache not in known:

        def parts(cache: Any) -> tuple[list[Any], None]:
            return [cache.self_attention_cache, cache.cross_attention_cache], None

        def whole(parts: Any, _: Any) -> Any:
            return EncoderDecoderCache(*parts)

        name = f"{EncoderDecoderCache.__module__}.{EncoderDecoderCache.__name__}"
        torch.utils._pytree.register_pytree_node(EncoderDecoderCache, parts, whole, serialized_type_name=name)


def know_windows(torch: Any, cache_class: Any) -> bool:
    """Registers the caches with all that their layers keep on the card: keys and values, states of convolutions and recurrences, and the
    size of each sliding window, which transformers 5.24 makes a tensor of. False if this release has no such layers."""
    try:
        from transformers.cache_utils import DynamicSlidingWindowLayer

        is_exporting, lazy = torch.compiler.is_exporting, DynamicSlidingWindowLayer.lazy_initialization
        if not hasattr(DynamicSlidingWindowLayer(1), "_sliding_window_tensor"):
            return False
    except (ImportError, AttributeError, TypeError):
        return False

    def initialized(self: Any, *states: Any) -> None:
        lazy(self, *states)
        if is_exporting():
            # The same number, made where the cache lies: an export keeps no copies of constants.
            self._sliding_window_tensor = torch.full((), self.sliding_window, dtype=torch.long, device=self.device)

    def parts(cache: Any) -> tuple[list[Any], Any]:
        """The tensors by the name under which a layer keeps them, as those of all layers one after another."""
        found: dict[str, list[Any]] = {"keys": [], "values": []}
        for layer in cache.layers:
            for name, kept in vars(layer).items():
                tensors = list(kept.values()) if isinstance(kept, dict) else [kept]
                found.setdefault(name, []).extend(one for one in tensors if isinstance(one, torch.Tensor))
        return list(found.values()), [type(layer).__name__ for layer in cache.layers]

    def whole(values: Any, _: Any) -> Any:
        cache = cache_class()
        for number, (keys, states) in enumerate(zip(values[0], values[1])):
            cache.update(keys, states, number)
        return cache

    DynamicSlidingWindowLayer.lazy_initialization = initialized
    name = f"{cache_class.__module__}.{cache_class.__name__}"
    torch.utils._pytree.register_pytree_node(cache_class, parts, whole, serialized_type_name=name)
    return True
