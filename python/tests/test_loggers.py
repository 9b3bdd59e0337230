"""Tests of the figures that TensorBoard, W&B and MLflow write of a watched training on a simulated card, read back from their files."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from common import HAS_TORCH, HAS_TRANSFORMERS, ROOT

import vramlab

NEEDED = ("tensorboard", "wandb", "mlflow", "lightning")
MISSING = [name for name in NEEDED if not importlib.util.find_spec(name)]
LIBRARY = os.environ.get("VRAMLAB_REHEARSAL_LIBRARY")
# Names by which CUDA's libraries are asked for.
ASKED = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")

# Numbers by figure and step.
Written = dict[str, list[tuple[int, float]]]


def tensorboard(folder: Path) -> Written:
    """The scalars of all event files below a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Written = {}
    for file in folder.glob("tensorboard/**/events.out.*"):
        events = EventAccumulator(str(file))
        events.Reload()
        for name in events.Tags()["scalars"]:
            found[_own(name)] = [(event.step, event.value) for event in events.Scalars(name)]
    return found


def wandb(folder: Path) -> Written:
    """The history of the run that W&B wrote offline."""
    from wandb.proto import wandb_internal_pb2

    found: Written = {}
    for data in (data for file in folder.glob("wandb/offline-run-*/*.wandb") for data in _records(file.read_bytes())):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {"/".join(one.nested_key) or one.key: json.loads(one.value_json) for one in record.history.item}
            step = next((row[name] for name in ("vramlab/step", "train/global_step", "trainer/global_step") if name in row), 0)
            for name, value in row.items():
                found.setdefault(_own(name), []).append((step, value))
    return found


def _records(data: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's format of logs, whose blocks of 32 KiB begin behind seven bytes of W&B's own."""
    at, record = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        # Whole records, and last parts.
        if kind in (1, 4):
            yield record
            record = b""


def mlflow(folder: Path) -> Written:
    """The metrics of the only run in MLflow's store of files."""
    from mlflow.tracking import MlflowClient

    with mock.patch.dict(os.environ, {"MLFLOW_ALLOW_FILE_STORE": "true"}):
        client = MlflowClient(f"file:{folder / 'mlflow'}")
        (run,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
        names: list[str] = list(run.data.metrics)
        return {_own(name): [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)] for name in names}


def _own(name: str) -> str:
    """The figure's own name: the Trainer puts `train/` before it."""
    return name.removeprefix("train/")


@unittest.skipUnless(HAS_TORCH and HAS_TRANSFORMERS and not MISSING, f"PyTorch, transformers, {', '.join(NEEDED)} are not all installed")
@unittest.skipUnless(LIBRARY, "VRAMLAB_REHEARSAL_LIBRARY names no library that simulates a card")
class Libraries(unittest.TestCase):
    def watched(self, which: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """Trains under `vramlab watch` on a simulated card; returns the training's own figures and those of the command."""
        run = folder / "run"
        run.mkdir()
        shutil.copy(str(LIBRARY), run / "libvramlab_rehearsal.so")
        for name in ASKED:
            (run / name).symlink_to("libvramlab_rehearsal.so")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), *sys.path]),
            "LD_PRELOAD": str(run / "libvramlab_rehearsal.so"),
            "LD_LIBRARY_PATH": str(run),
            "VRAMLAB_REHEARSAL_CAPABILITY": "8.9",
            "HOME": str(folder),
        }
        script = Path(__file__).with_name("watched_training.py")
        words = ["watch", "--json", "watched.json", "--", sys.executable, str(script), which]
        done = subprocess.run(
            [str(vramlab.binary()), *words], cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (process,) = json.loads((folder / "watched.json").read_text(encoding="utf-8"))["processes"]
        return json.loads((folder / "figures.json").read_text(encoding="utf-8")), process

    def compared(self, which: str, steps: list[int]) -> None:
        with tempfile.TemporaryDirectory() as named:
            folder = Path(named)
            figures, process = self.watched(which, folder)
            self.assertEqual(figures["vramlab/peak"], process["peak_allocated"])
            self.assertEqual(figures["vramlab/peak_reserved"], process["peak_reserved"])
            for name in ("parameter", "gradient", "optimizer_state"):
                self.assertGreater(figures[f"vramlab/{name}"], 0)
                self.assertEqual(figures[f"vramlab/{name}"], process["by_category"][name])
            for read in (tensorboard, wandb, mlflow):
                with self.subTest(library=read.__name__):
                    written = read(folder)
                    self.assertEqual({name: written[name][-1][1] for name in figures}, figures)
                    found = sorted({step for step, _ in written["vramlab/peak"]})
                    if steps:
                        self.assertEqual(found, steps)
                    else:
                        # Steps of a microsecond are not looked at one by one; the last is.
                        self.assertEqual((found[-1], len(found) > 1), (40, True))

    def test_a_loop_of_ones_own(self) -> None:
        self.compared("loop", [])

    def test_the_trainer_of_transformers(self) -> None:
        self.compared("trainer", [5, 10, 15, 20])

    def test_lightning(self) -> None:
        self.compared("lightning", [5, 10, 15, 20])


if __name__ == "__main__":
    unittest.main()
