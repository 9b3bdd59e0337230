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


def recorded_steps(history: History, steps: int, allocations: int, seconds: float, first: int = 1) -> list[int]:
    """The steps that are recorded whole of some of this kind."""
    found = []
    for step in range(first, first + steps):
        if history.is_on:
            found.append(step)
        history.after_step(step, 1, allocations, seconds)
    return found


class Recording(unittest.TestCase):
    def history(self, entries: int = 1000) -> Any:
        self.torch = torch_with(Path("none"))
        history = History(self.torch, entries)
        history.begin()
        # Of a stack: three of these, and two for the events.
        history._capture = 1e-6
        return history

    def test_short_steps_are_recorded_now_and_then_for_their_share_of_the_time(self) -> None:
        history = self.history()
        steps, seconds, each = 5000, 0.01, 100 * 5e-6
        found = recorded_steps(history, steps, 100, seconds)
        self.assertEqual(found[:3], [1, 2, 3])
        # Always two together, as far apart as they cost.
        self.assertEqual([after - one for one, after in zip(found[3::2], found[4::2])], [1] * len(found[4::2]))
        self.assertLess(len(found) * each / (steps * seconds), 0.0013)
        self.assertGreater(len(found) * each / (steps * seconds), 0.0007)
        self.assertEqual((history.recorded, history.last), (len(found), found[-1]))
        begins = [call for call in self.torch.cuda.memory.calls if call == ("record", 1000)]
        self.assertEqual(len(begins), len(found) // 2)

    def test_long_steps_are_all_recorded(self) -> None:
        history = self.history()
        self.assertEqual(recorded_steps(history, 50, 100, 1.0), list(range(1, 51)))
        # As soon as they are shorter, they are not.
        self.assertEqual(recorded_steps(history, 5, 100, 0.01, 51), [51])

    def test_what_happens_is_recorded_at_once_and_paid_for_later(self) -> None:
        history = self.history()
        self.assertEqual(recorded_steps(history, 10, 100, 0.01), [1, 2, 3])
        history.window(10)
        found = recorded_steps(history, 900, 100, 0.01, 11)
        self.assertEqual(found[:8], list(range(11, 19)))
        self.assertGreater(found[8] - 18, 8 * 16)

    def test_changes_are_made_at_the_steps_that_were_named(self) -> None:
        history = self.history()
        self.assertEqual(history.next_change(1), 3)
        recorded_steps(history, 3, 100, 0.01)
        again = history.next_change(3)
        self.assertGreater(again, 3 + 16)
        self.assertEqual(recorded_steps(history, again + 3, 100, 0.01, 4), [again + 1, again + 2])

    def test_without_entries_nothing_is_recorded(self) -> None:
        history = self.history(0)
        self.assertEqual(recorded_steps(history, 20, 1000, 0.001), [])
        history.window(20)
        history.end()
        self.assertEqual((self.torch.cuda.memory.calls, history.is_on), ([], False))


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

    def test_each_recorded_window_ends_where_it_should_between_far_looks(self) -> None:
        meter = Meter(self.torch)
        meter.install()
        meter.history._capture = 1e-6
        optimizer = self.optimizer()
        with mock.patch("time.perf_counter", lambda: 0.01 * meter.steps):
            found = []
            for step in range(1, 400):
                if meter.history.is_on:
                    found.append(step)
                self.step(100, optimizer)
        self.assertEqual(found[:3], [1, 2, 3])
        self.assertTrue(len(found) > 7 and all(after == one + 1 for one, after in zip(found[3::2], found[4::2])), found)
        self.assertEqual(meter.status()["recorded_steps"], len(found))

    def test_a_card_that_fills_and_a_failure_are_recorded(self) -> None:
        meter = Meter(self.torch)
        meter.install()
        meter.history._capture = 1.0
        optimizer = self.optimizer()
        for _ in range(4):
            self.step(100, optimizer)
        self.assertFalse(meter.history.is_on)
        meter._next = 0
        self.step(200, optimizer)
        self.assertFalse(meter.history.is_on, "there is room")
        meter._next = 0
        self.step((1 << 30) - 100, optimizer)
        self.assertTrue(meter.history.is_on)
        for _ in range(8):
            self.step((1 << 30) - 200, optimizer)
        self.assertFalse(meter.history.is_on, "it rises no more")
        self.torch.observers[0](0, 1, 2, 3)
        self.assertTrue(meter.history.is_on and meter.out_of_memory is not None and not meter.out_of_memory["recorded"])
        assert meter.out_of_memory is not None
        self.assertRegex(meter.out_of_memory["line"], r"test_watching.py:\d+ test_a_card_that_fills")

    def test_the_first_steps_that_were_recorded_are_in_a_picture(self) -> None:
        (self.folder / "none").write_bytes(b"snapshot")
        meter = Meter(self.torch)
        meter.install()
        meter.history._capture = 1.0
        teller = Teller(meter, self.folder, self.folder / "out.pickle", pictures=True)
        optimizer, picture = self.optimizer(), self.folder / f"{os.getpid()}.pickle"
        for step in range(1, 6):
            self.assertEqual(picture.exists(), step > 3)
            # It is written while PyTorch has their events.
            self.assertEqual(meter.history.is_on, step <= 3)
            self.step(100, optimizer)
        picture.unlink()
        teller.end()
        self.assertFalse(picture.exists(), "no picture without events in place of one with them")
        told = json.loads((self.folder / f"{os.getpid()}.json").read_text(encoding="utf-8"))
        self.assertEqual((told["snapshot_step"], told["recorded_steps"], told["last_recorded_step"]), (3, 3, 3))

    def test_a_slow_disk_makes_statuses_rarer(self) -> None:
        now = [0.0]
        with mock.patch("time.perf_counter", lambda: now[0]):
            meter = Meter(self.torch)
            meter.install()
            teller = Teller(meter, self.folder, self.folder / "out.pickle", pictures=False)
            told = []
            tell = teller.tell

            def slow() -> None:
                tell()
                now[0] += 0.01
                told.append(meter.steps)

            teller.tell = slow  # type: ignore[method-assign, assignment]
            optimizer = self.optimizer()
            for _ in range(1000):
                now[0] += 0.1
                meter._next = 0
                self.step(100, optimizer)
        # A status in 10 seconds: a thousandth of the time.
        self.assertTrue(8 <= len(told) <= 12, told)

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
