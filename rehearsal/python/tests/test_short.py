"""The short way of operators on small known contents gives what the long way gives."""

import fake_tensors as fake
import pytest

from _vramlab_rehearsal.values import known as known_module
from _vramlab_rehearsal.values import short
from _vramlab_rehearsal.values.values import Values


@pytest.fixture
def values(monkeypatch):
    fake.counter(monkeypatch, known_module)
    made = Values(fake.torch(), fake.Library())
    made.reads.log = None
    return made


def known(values, *numbers):
    tensor = fake.Tensor([0] * len(numbers), device="cuda")
    values.register(tensor).write(list(numbers))
    return tensor


def contents(values, tensor):
    twin = values.find(tensor)
    return twin and values.view(tensor, twin).tolist()


def made(numbers, device="cpu"):
    """As `torch.tensor`, `full` and others, of a list."""
    return fake.Tensor([0] * len(numbers) if device == "cuda" else list(numbers), device=device)


@pytest.mark.parametrize("name", ["tensor", "full", "arange"])
def test_a_tensor_of_a_list_of_numbers_is_known(values, name):
    assert contents(values, values.call(made, name, ([300, 400],), {"device": "cuda"})) == [300, 400]


def test_a_tensor_made_while_a_graph_is_recorded_is_not_known(values, monkeypatch):
    monkeypatch.setattr(short, "is_captured", lambda _: True)
    monkeypatch.setattr(values, "random_offset", lambda name="": None)
    assert contents(values, values.call(made, "tensor", ([300],), {"device": "cuda"})) is None


def test_what_is_written_in_place_is_known_and_doubt_is_handed_on(values):
    one, other = known(values, 1, 2), known(values, 10, 20)
    values.find(other).doubtful = "as before"
    add_in_place = lambda mine, theirs: mine.write([a + b for a, b in zip(mine.tolist(), theirs.tolist())])
    assert values.call(add_in_place, "add_", (one, other), {}) is one
    assert contents(values, one) == [11, 22] and values.find(one).doubtful == "as before"


def test_shared_contents_are_not_written(values):
    one = known(values, 1, 2)
    twin = values.find(one)
    twin.shared = True
    values.call(lambda mine, other: mine.write([number + other for number in mine.tolist()]), "add_", (one, 5), {})
    assert contents(values, one) == [6, 7] and values.view(one, twin).tolist() == [1, 2]


def test_an_operator_that_the_host_refuses_leaves_nothing_known(values):
    def refuse(mine, other):
        if not mine.is_cuda:
            raise RuntimeError("not on the host")
        return mine.write([0, 0])

    one = known(values, 1, 2)
    values.call(refuse, "add_", (one, 5), {})
    assert contents(values, one) is None


def test_a_size_that_is_a_tensor_is_shown_to_the_library(values):
    shown = []
    values.call(lambda *_: shown.extend(values.library.shown), "reshape", (known(values, 1, 2), known(values, 2)), {})
    assert len(shown) == 2
