"""Tests of the fixture `vram`, in separate pytest runs."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest
from common import config

TEST = """
def test_memory(vram):
    found = vram.check("config.json", batch={batch}, sequence=64, gpu={gpu!r}{more})
    assert 0 < found.peak <= found.reserved
"""


# Where the package is installed, its entry point registers the plugin.
INSTALLED = any(entry.name == "vramlab" for entry in importlib.metadata.entry_points().select(group="pytest11"))
OPTIONS = ["-p", "no:cacheprovider", *([] if INSTALLED else ["-p", "vramlab.pytest_plugin"])]


@pytest.fixture
def runs(pytester: pytest.Pytester) -> pytest.Pytester:
    config(pytester.path)
    return pytester


def outcome(runs: pytest.Pytester, *args: str, batch: int = 2, gpu: str = "rtx4090", more: str = "") -> tuple[dict[str, int], str]:
    runs.makepyfile(test_it=TEST.format(batch=batch, gpu=gpu, more=more))
    result = runs.runpytest_inprocess(*OPTIONS, *args)
    return result.parseoutcomes(), result.stdout.str()


def test_a_run_is_locked_then_held(runs: pytest.Pytester) -> None:
    done, text = outcome(runs)
    assert done == {"failed": 1}
    assert "not locked yet: pytest --vram-update" in text
    assert outcome(runs, "--vram-update")[0] == {"passed": 1}
    lock = Path(runs.path, "test_it.vram.json")
    assert json.loads(lock.read_text())["runs"]["test_memory"]["flags"]["model-file"] == "config.json"
    assert outcome(runs)[0] == {"passed": 1}


def test_memory_that_grew_fails_and_says_how_much(runs: pytest.Pytester) -> None:
    outcome(runs, "--vram-update")
    config(runs.path, num_hidden_layers=6)
    done, text = outcome(runs)
    assert done == {"failed": 1}
    assert "grew" in text
    assert "pytest --vram-update" in text
    assert outcome(runs, more=", tolerance='100%'")[0] == {"passed": 1}
    config(runs.path, num_hidden_layers=3)
    assert outcome(runs)[0] == {"passed": 1}


def test_another_run_is_not_held_against_the_locked_one(runs: pytest.Pytester) -> None:
    outcome(runs, "--vram-update")
    done, text = outcome(runs, batch=1)
    assert done == {"failed": 1}
    assert "batch: 2.0, now 1.0" in text
    done, text = outcome(runs, more=", optimizer='sgd'")
    assert done == {"failed": 1}
    assert "optimizer: not said, now sgd" in text


def test_what_does_not_fit_fails_locked_or_not(runs: pytest.Pytester) -> None:
    done, text = outcome(runs, "--vram-update", gpu="64MiB")
    assert done == {"failed": 1}
    assert "out of memory" in text


def test_each_check_of_a_test_is_a_run_of_its_own(runs: pytest.Pytester) -> None:
    runs.makepyfile(
        test_two="def test_both(vram):\n    [vram.check('mlp', batch=n) for n in (8, 16)]\n    vram.check('mlp', batch=4, name='four')\n"
    )
    assert runs.runpytest_inprocess(*OPTIONS, "--vram-update").parseoutcomes() == {"passed": 1}
    locked = json.loads(Path(runs.path, "test_two.vram.json").read_text())["runs"]
    assert sorted(locked) == ["four", "test_both", "test_both #2"]
