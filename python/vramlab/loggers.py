"""Writes the figures of a watched training where its losses are: ``vramlab.watch(log=vramlab.loggers.tensorboard(writer))``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

Log = Callable[[dict[str, Any], int], None]


def tensorboard(writer: Any) -> Log:
    """A scalar for each figure, in bytes. ``writer``: a ``torch.utils.tensorboard.SummaryWriter``."""

    def log(figures: dict[str, Any], step: int) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, step)

    return log


def wandb(run: Optional[Any] = None) -> Log:
    """The figures in a run of Weights & Biases; ``run``: the current one unless said.

    They join the row that the script's own next ``log`` ends: the count of W&B's rows is the script's.
    """

    def log(figures: dict[str, Any], step: int) -> None:
        into = run
        if into is None:
            import wandb as library

            into = library.run
        if into is not None:
            into.log({**figures, "vramlab/step": step}, commit=False)

    return log


def mlflow(client: Optional[Any] = None) -> Log:
    """The figures as metrics of the active run of MLflow; ``client``: a module or an object that has ``log_metrics``."""

    def log(figures: dict[str, Any], step: int) -> None:
        into = client
        if into is None:
            import mlflow as library

            # Without one MLflow would begin a run of its own.
            if library.active_run() is None:
                return
            into = library
        into.log_metrics({name: float(value) for name, value in figures.items()}, step=step)

    return log
