"""The parts that callbacks share: the card of this process, and the message before the first step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Optional

from ._answers import Prediction
from ._binary import DoesNotFit, VramlabError


class Before:
    """Asks once, and prints the answer to standard error."""

    def __init__(self, gpu: Optional[str], must_fit: bool) -> None:
        self._gpu = gpu
        self._must_fit = must_fit

    def say(self, ask: Callable[[dict[str, Any]], Prediction]) -> None:
        """Prints the prediction for the named card, or for the card of this process.

        Raises :class:`DoesNotFit` if the training must fit and does not. If there is no prediction, prints why in one line.
        """
        try:
            found = ask({"gpu": self._gpu} if self._gpu else this_card())
        except (VramlabError, OSError) as error:
            self._tell(f"vramlab: whether this fits is not known: {error}")
            return
        self._tell(str(found))
        if self._must_fit and found.fits is False:
            raise DoesNotFit(found.sentence)

    def _tell(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def this_card() -> dict[str, Any]:
    """Returns the flags for the card that PyTorch uses: memory for tensors, rules of the release and compute capability, multiprocessors.

    Raises :class:`VramlabError` if PyTorch sees no card.
    """
    import torch

    if not torch.cuda.is_available():
        raise VramlabError("PyTorch sees no CUDA device: name a card by gpu=")
    free, _ = torch.cuda.mem_get_info()
    major, minor = torch.cuda.get_device_capability()
    release = ".".join(torch.__version__.split(".")[:2])
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    # Memory that this process has reserved already belongs to the network, which the prediction counts itself.
    there = free + torch.cuda.memory_reserved()
    return {
        "gpu": f"{there >> 20}MiB",
        "like": f"torch-{release}-sm{major}{minor}",
        "multiprocessors": properties.multi_processor_count,
    }
