"""Fixtures: the settings of a run, and a stand-in for PyTorch that counts what it is told to allocate."""

import importlib
import pathlib
import sys

import from_memory
import pytest

from_memory.imported()
from _vramlab_rehearsal.boot import made_up  # noqa: E402
from _vramlab_rehearsal.boot.settings import SETTINGS  # noqa: E402

STAND_IN = pathlib.Path(__file__).parents[3] / "cli" / "tests" / "rehearse"


@pytest.fixture
def settings(tmp_path):
    """Settings of a run that writes into a folder of the test's."""
    answers = tmp_path / "answers"
    answers.mkdir()
    SETTINGS.update(
        {
            "answers": str(answers),
            "steps": None,
            "until": [],
            "settled": None,
            "stacks": True,
            "values": False,
            "entries": 1000,
            "world": None,
            "signal": 12,
        }
    )
    return SETTINGS


@pytest.fixture
def answers(settings):
    """The folder for the files of the processes."""
    return pathlib.Path(settings["answers"])


@pytest.fixture
def data_made_up(answers, monkeypatch):
    """Missing data is made up, of 16 words a text; nothing was so far."""
    made_up.MADE_UP.clear()
    made_up.ASKED.clear()
    monkeypatch.setitem(SETTINGS, "make_data", 16)


@pytest.fixture
def torch(monkeypatch):
    """The stand-in, as new. `torch.cuda.memory.allocate` and `free` say what happens."""
    own = [name for name in sys.modules if name.partition(".")[0] == "torch"]
    kept = {name: sys.modules.pop(name) for name in own}
    monkeypatch.syspath_prepend(str(STAND_IN))
    made = importlib.import_module("torch")
    assert str(STAND_IN) in made.__file__
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        del sys.modules[name]
    sys.modules.update(kept)
