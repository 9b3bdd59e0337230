"""Tests of the watch inside a training, without PyTorch."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from common import OutOfMemoryError, torch_with

import vramlab
from vramlab import loggers
from vramlab._watching.growth import Course
from vramlab._watching.history import History
from vramlab._watching.meter import Meter
from vramlab._watching.tell import Teller, runtime_folder


def grows(figures: list[int]) -> Any:
    course = Course()
    for step, allocated in enumerate(figures, 1):
        course.add(step, allocated)
    return course.growth()


class Growth(unittest.TestCase):
    def test_what_rises_in_every_fifth_of_a_run_grows(self) -> None:
        found = grows([1000, 9000, *(100 + 7 * step for step in range(3, 40))])
        self.assertEqual((found.bytes_per_step, found.since_step), (7, 5))
        # A batch of another size hides none of it.
        noisy = grows([100 + 7 * step + 500 * (step % 3) for step in range(200)])
        self.assertAlmostEqual(noisy.bytes_per_step, 7, delta=1)

    def test_what_fills_or_stays_does_not(self) -> None:
        for figures in ([100] * 50, [100 * min(step, 30) for step in range(100)], [100 * (step % 17) for step in range(100)], [1, 2, 3]):
            self.assertIsNone(grows(figures))

    def test_a_long_run_is_thinned_and_says_the_same(self) -> None:
        self.assertEqual(grows([3 * step for step in range(20000)]).bytes_per_step, 3)


class Recording(unittest.TestCase):
    def test_lines_are_noted_only_where_they_cost_little(self) -> None:
        torch = torch_with(Path("none"))
        history = History(torch)
        history.begin()
        history._capture = 1e-6
        for _ in range(7):
            history.after_step(100, 0.001)
        self.assertTrue(history.has_lines)
        history.after_step(100, 0.001)
        self.assertFalse(history.has_lines)
        # Longer steps can afford them; and growth asks for them whatever they cost.
        history.after_step(100, 1.0)
        self.assertTrue(history.has_lines)
        history.after_step(100, 0.001)
        self.assertFalse(history.has_lines)
        history.window()
        self.assertTrue(history.has_lines)

    def test_without_entries_nothing_is_recorded(self) -> None:
        torch = torch_with(Path("none"))
        history = History(torch, 0)
        history.begin()
        for _ in range(20):
            self.assertEqual(history.after_step(1000, 0.001), 0.0)
        history.window()
        history.end()
        self.assertEqual((torch.cuda.memory.calls, history.has_lines), ([], False))


class Watched(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.torch = torch_with(self.folder / "none")
        modules = {"torch": self.torch, **self.torch.submodules}
        patch = mock.patch.dict(sys.modules, modules)
        patch.start()
        self.addCleanup(patch.stop)

    def step(self, allocated: int, optimizer: Any) -> None:
        self.torch.counters.allocated = allocated
        self.torch.counters.peak = max(self.torch.counters.peak, allocated + 10)
        self.torch.counters.made += 5
        for hook in self.torch.hooks:
            hook(optimizer, (), {})

    def optimizer(self) -> Any:
        class Optimizer:
            def __init__(self) -> None:
                self.param_groups: list[Any] = [{"params": [types.SimpleNamespace(is_cuda=False, grad=None)]}]
                self.state: dict[Any, Any] = {}

        return Optimizer()

    def test_figures_are_those_of_pytorchs_counters(self) -> None:
        logged: list[tuple[int, int]] = []
        meter = Meter(self.torch, log=lambda figures, step: logged.append((step, figures["vramlab/allocated"])), log_every=2)
        meter.install()
        optimizer = self.optimizer()
        for step in range(1, 5):
            meter._next = 0
            self.step(100 * step, optimizer)
        found = meter.figures()
        self.assertEqual((found["vramlab/allocated"], found["vramlab/peak"], meter.steps), (400, 410, 4))
        self.assertEqual([step for step, _ in logged], [2, 4])
        self.assertEqual(meter.status()["peak_step"], 4)
        meter.remove()
        self.assertEqual(self.torch.hooks, [])

    def test_the_last_figures_are_logged_once(self) -> None:
        logged: list[tuple[int, int]] = []

        def log(figures: dict[str, Any], step: int) -> None:
            logged.append((step, figures["vramlab/peak"]))

        with vramlab.watch(self.folder / "oom.pickle", tell=self.fail, log=log, log_every=3) as watched:
            optimizer = self.optimizer()
            for step in range(1, 6):
                assert watched._meter is not None
                watched._meter._next = 0
                self.step(100 * step, optimizer)
            # After the last look.
            self.torch.counters.peak = 900
        self.assertEqual(logged, [(3, 310), (5, 900)])
        logged.clear()
        with vramlab.watch(self.folder / "oom.pickle", tell=self.fail, log=log):
            pass
        self.assertEqual(logged, [])

    def test_a_slow_log_makes_looks_no_rarer(self) -> None:
        now = [0.0]

        def log(_figures: dict[str, Any], _step: int) -> None:
            now[0] += 0.05

        with mock.patch("time.perf_counter", lambda: now[0]):
            meter = Meter(self.torch, log=log, log_every=1)
            meter.install()
            optimizer = self.optimizer()
            for step in range(1, 6):
                now[0] += 0.005
                self.step(100 * step, optimizer)
        self.assertEqual(meter._next - meter.steps, 1)
        self.assertLess(meter._own, 0.001)

    def test_allocations_of_before_are_not_its_own_time(self) -> None:
        self.torch.counters.made = 10_000_000
        meter = Meter(self.torch)
        meter.install()
        optimizer = self.optimizer()
        for _ in range(3):
            self.step(100, optimizer)
        self.assertLess(meter._own, 1)

    def test_steps_between_two_looks_are_counted_and_cost_no_look(self) -> None:
        meter = Meter(self.torch)
        meter.install()
        optimizer = self.optimizer()
        for step in range(1, 4):
            self.step(100 * step, optimizer)
        meter._next = 10
        with mock.patch.object(meter, "step", wraps=meter.step) as looked:
            for step in range(4, 10):
                self.step(100 * step, optimizer)
            self.assertEqual((meter.steps, looked.call_count), (9, 0))
            self.step(1000, optimizer)
            self.assertEqual((meter.steps, looked.call_count), (10, 1))
        self.assertEqual(meter.figures()["vramlab/allocated"], 1000)

    def test_one_of_several_optimizers_marks_the_steps(self) -> None:
        meter = Meter(self.torch)
        meter.install()
        first, second = self.optimizer(), self.optimizer()
        for _ in range(4):
            self.step(100, first)
            self.step(100, second)
        self.assertEqual(meter.steps, 4)
        for _ in range(40):
            self.step(100, second)
        self.assertGreater(meter.steps, 20)

    def test_a_request_for_a_snapshot_is_answered_after_two_steps(self) -> None:
        meter = Meter(self.torch)
        meter.install()
        teller = Teller(meter, self.folder, self.folder / "out.pickle", pictures=False)
        wanted, optimizer = self.folder / "asked.pickle", self.optimizer()
        (self.folder / "none").write_bytes(b"snapshot")
        (self.folder / f"{os.getpid()}.ask").write_text(str(wanted), encoding="utf-8")
        teller._told = -10.0
        for _ in range(3):
            self.assertFalse(wanted.exists())
            meter._next = 0
            self.step(100, optimizer)
        self.assertTrue(wanted.exists())
        teller.end()
        told = json.loads((self.folder / f"{os.getpid()}.json").read_text(encoding="utf-8"))
        self.assertEqual((told["schema"], told["snapshot"], told["ended"]), ("vramlab-watched-1", str(wanted), True))
        teller.remove()
        self.assertFalse((self.folder / f"{os.getpid()}.json").exists())

    def test_a_handled_failure_leaves_no_file(self) -> None:
        (self.folder / "none").write_bytes(b"snapshot")
        path = self.folder / "oom.pickle"
        path.write_bytes(b"of an earlier run")
        with mock.patch.dict(os.environ, {"VRAMLAB_RUNTIME_DIR": str(self.folder / "run")}):
            with vramlab.watch(path, tell=self.fail):
                try:
                    self.torch.observers[0](0, 1, 2, 3)
                    raise OutOfMemoryError("handled")
                except OutOfMemoryError:
                    pass
        self.assertEqual(path.read_bytes(), b"of an earlier run")
        self.assertEqual(sorted(one.name for one in self.folder.iterdir()), ["none", "oom.pickle", "run"])
        self.assertEqual(list((self.folder / "run").iterdir()), [])

    @unittest.skipIf(sys.platform == "win32", "there are no such rights")
    def test_a_folder_of_others_is_not_written_to(self) -> None:
        open_to_all = self.folder / "open"
        open_to_all.mkdir()
        open_to_all.chmod(0o777)
        with mock.patch.dict(os.environ, {"VRAMLAB_RUNTIME_DIR": str(open_to_all)}):
            self.assertIsNone(runtime_folder())


class Loggers(unittest.TestCase):
    FIGURES: ClassVar[dict[str, Any]] = {"vramlab/peak": 5, "vramlab/reserved": 8}

    def test_each_writes_the_same_figures(self) -> None:
        writer, run, client = mock.Mock(), mock.Mock(), mock.Mock()
        loggers.tensorboard(writer)(self.FIGURES, 3)
        loggers.wandb(run)(self.FIGURES, 3)
        loggers.mlflow(client)(self.FIGURES, 3)
        self.assertEqual([call.args for call in writer.add_scalar.call_args_list], [("vramlab/peak", 5, 3), ("vramlab/reserved", 8, 3)])
        run.log.assert_called_once_with({**self.FIGURES, "vramlab/step": 3}, commit=False)
        client.log_metrics.assert_called_once_with({"vramlab/peak": 5.0, "vramlab/reserved": 8.0}, step=3)

    def test_mlflow_begins_no_run_of_its_own(self) -> None:
        library = mock.Mock()
        library.active_run.return_value = None
        with mock.patch.dict(sys.modules, {"mlflow": library}):
            loggers.mlflow()(self.FIGURES, 3)
            library.log_metrics.assert_not_called()
            library.active_run.return_value = object()
            loggers.mlflow()(self.FIGURES, 3)
        library.log_metrics.assert_called_once()


if __name__ == "__main__":
    unittest.main()
