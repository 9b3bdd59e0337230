"""A small training that is watched, and whose figures real libraries write below the working folder: ``watched_training.py loop``.

``loop`` is a script's own, with TensorBoard, W&B and MLflow. ``trainer`` is transformers' Trainer with the same, ``lightning`` Lightning.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

import vramlab

HERE = Path.cwd()
STORE = f"file:{HERE / 'mlflow'}"


def network() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))


def loop() -> dict[str, Any]:
    import mlflow
    import wandb
    from torch.utils.tensorboard.writer import SummaryWriter

    from vramlab import loggers

    writer, run = SummaryWriter("tensorboard"), wandb.init(project="watched")
    mlflow.start_run()
    every = [loggers.tensorboard(writer), loggers.wandb(), loggers.mlflow()]

    def log(figures: dict[str, Any], step: int) -> None:
        for one in every:
            one(figures, step)

    net = network().cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    with vramlab.watch(log=log) as watched:
        for _ in range(40):
            net(torch.randn(64, 512, device="cuda")).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            run.log({"loss": 1.0})
        figures = watched.figures()
    writer.close()
    run.finish()
    mlflow.end_run()
    return figures


def trainer() -> dict[str, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    from vramlab.transformers import watch_trainer

    small = LlamaConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
    data = [{name: torch.randint(1000, (32,)) for name in ("input_ids", "labels")} for _ in range(80)]
    asked = {"max_steps": 20, "logging_steps": 5, "per_device_train_batch_size": 4, "save_strategy": "no", "disable_tqdm": True}
    arguments = TrainingArguments("out", report_to=["tensorboard", "wandb", "mlflow"], **asked)
    training = Trainer(LlamaForCausalLM(small), arguments, train_dataset=data)
    watch_trainer(training)
    training.train()
    rows: list[dict[str, Any]] = training.state.log_history
    return {name: value for name, value in rows[-1].items() if name.startswith("vramlab/")}


def lightning() -> dict[str, Any]:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger

    from vramlab.lightning import WatchCallback

    figures: dict[str, Any] = {}

    class Kept(WatchCallback):
        """Keeps the last figures, too."""

        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            figures.update(self._watch.figures())
            super().on_fit_end(trainer, pl_module)

    class Net(LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.layers = network()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.layers(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    data = torch.utils.data.TensorDataset(torch.randn(320, 512))
    written = [TensorBoardLogger(str(HERE), name="tensorboard"), WandbLogger(), MLFlowLogger(tracking_uri=STORE)]
    quiet = dict.fromkeys(("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    training = Trainer(max_epochs=1, log_every_n_steps=5, callbacks=[Kept()], logger=written, accelerator="gpu", devices=1, **quiet)
    training.fit(Net(), torch.utils.data.DataLoader(data, batch_size=16))
    return figures


if __name__ == "__main__":
    os.environ.update(
        WANDB_MODE="offline",
        WANDB_SILENT="true",
        WANDB_DIR=str(HERE),
        MLFLOW_TRACKING_URI=STORE,
        MLFLOW_ALLOW_FILE_STORE="true",
        TENSORBOARD_LOGGING_DIR="tensorboard",
    )
    Path("figures.json").write_text(json.dumps({"loop": loop, "trainer": trainer, "lightning": lightning}[sys.argv[1]]()))
