"""How much GPU memory the training of a PyTorch network takes, who holds it, and what would make it fit.

Everything is asked of the program ``vramlab``, which is installed beside this package; nothing is downloaded or reported.
"""

from __future__ import annotations

from ._answers import Answer, Change, Checked, Explanation, Fit, Prediction, Rehearsal
from ._binary import DoesNotFit, VramlabError, binary
from ._estimate import estimate
from ._predict import explain, fit, predict
from ._watch import watch
from .export import export

__all__ = [
    "Answer",
    "Change",
    "Checked",
    "DoesNotFit",
    "Explanation",
    "Fit",
    "Prediction",
    "Rehearsal",
    "VramlabError",
    "binary",
    "estimate",
    "explain",
    "export",
    "fit",
    "predict",
    "watch",
]
