"""The parts of the recorder (`scripts/record`) that need no PyTorch."""

from __future__ import annotations

import importlib
import pathlib
import sys
from types import ModuleType

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "scripts" / "record"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """The module whose name the test gives."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, request.param, raising=False)
    return importlib.import_module(request.param)


@pytest.mark.parametrize("module", ["script_format"], indirect=True)
def test_a_free_that_is_completed_at_once_is_one_event(module: ModuleType) -> None:
    base = 1 << 30
    events = [
        ["S", 2 << 20, base],
        ["a", 100, base],
        ["q", 100, base],
        ["c", 100, base],
        ["a", 200, base + 512],
        ["q", 200, base + 512],
        ["a", 8, base],
    ]
    made = module.events_of(events)
    assert made == {"ev": "Safaqa", "ev_size": [2 << 20, 100, 200, 200, 8], "ev_addr512": [0, 0, 1, 0], "ev_free_ref": [0, 1]}


@pytest.mark.parametrize("module", ["script_format"], indirect=True)
def test_labels_are_those_of_the_next_change_of_the_same_size(module: ModuleType) -> None:
    events = [["a", 100, 0], ["a", 600, 512], ["q", 100, 0], ["q", 600, 512]]
    told = [[512, "linear"], [1024, "relu"], [-1024, "NllBackward0."]]
    assert module.labels(events, told, rounds=False) == (["", "linear", "relu", "NllBackward0."], [1, 2, 0, 3])
    assert module.labels(events, [*told, [4096, "gone"]], rounds=False) is None


@pytest.mark.parametrize("module", ["script_format"], indirect=True)
def test_names_of_operators_are_short(module: ModuleType) -> None:
    assert module.label(("aten::linear", "aten::addmm", "aten::empty.memory_format")) == "linear>addmm"
    engine = "autograd::engine::evaluate_function: AddBackward0"
    assert module.label((engine, "AddBackward0", "aten::sum")) == "AddBackward0>sum"
    assert module.label((engine,)) == "AddBackward0."
    assert module.label(("a", "b", "c", "d")) == "a>b>d"


@pytest.mark.parametrize("module", ["traces"], indirect=True)
def test_calls_of_the_driver_belong_to_operations(module: ModuleType) -> None:
    trace = {"op": "aefa", "streams": 1, "alloc_conf": "", "driver": {"kind": "M"}}
    assert module.problem(trace) is None and module.problem({**trace, "streams": 2}) == "several streams"
    width, ooms = len(module.COLUMNS), list(module.COLUMNS).index("d_ooms")
    figures = [[0] * width + [calls] for calls in (1, 1, 2, 3)]
    figures[3][ooms] = 0
    base, two = 1 << 30, 2 << 20
    events = [
        {"action": "segment_alloc", "addr": base, "size": two},
        {"action": "alloc", "addr": base + 512},
        {"action": "segment_free", "addr": base, "size": two},
        {"action": "segment_alloc", "addr": base + two, "size": two},
        {"action": "alloc", "addr": base + two},
    ]
    where, asked, start = module.placed(trace, figures, events)
    assert (where, start) == ({"seg": [0, 1], "off512": [1, 0]}, base)
    assert asked == {"op": [0, 2, 3], "kind": "MFM", "addr2m": [0, 0, 1], "size2m": [1, 1, 1]}


@pytest.mark.parametrize("module", ["record"], indirect=True)
def test_two_recordings_are_compared_by_key(module: ModuleType) -> None:
    assert module.differing({"a": 1, "b": 2, "new": 3}, {"a": 1, "b": 3, "old": 4}) == ["b"]
    old = {"runs": [{"name": "x", "steps": [1]}, {"name": "y", "steps": [1]}]}
    new = {"runs": [{"name": "x", "steps": [2]}, {"name": "y", "steps": [1]}]}
    assert module.differing(new, old) == ["x: ['steps']"]
    assert module.packed({"a": 1}) == module.packed({"a": 1})
