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
    if DynamicCache not in known:
        register_dynamic_cache_export_support()
    if EncoderDecoderCache not in known:

        def parts(cache: Any) -> tuple[list[Any], None]:
            return [cache.self_attention_cache, cache.cross_attention_cache], None

        def whole(parts: Any, _: Any) -> Any:
            return EncoderDecoderCache(*parts)

        name = f"{EncoderDecoderCache.__module__}.{EncoderDecoderCache.__name__}"
        torch.utils._pytree.register_pytree_node(EncoderDecoderCache, parts, whole, serialized_type_name=name)
