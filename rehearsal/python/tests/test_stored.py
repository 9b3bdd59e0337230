"""Results that are computed again from the same, and what is not the same."""

import gc
import types

import fake_tensors as fake
import pytest

from _vramlab_rehearsal.values import known as known_module
from _vramlab_rehearsal.values import put_off as put_off_module
from _vramlab_rehearsal.values import stored as module
from _vramlab_rehearsal.values.operators import PUT_OFF
from _vramlab_rehearsal.values.put_off import Place, Work
from _vramlab_rehearsal.values.stored import Stored
from _vramlab_rehearsal.values.values import Values


class Operator:
    """An operator of PyTorch that counts how often the host computes it."""

    __module__, __qualname__ = "torch", "TensorBase.add"

    def __init__(self, compute):
        self.compute, self.times = compute, 0

    def __call__(self, *operands):
        given = [one.tolist() if isinstance(one, fake.Tensor) else [one] * operands[0].numel() for one in operands]
        if operands[0].is_cuda:
            return fake.Tensor([0] * operands[0].numel(), device="cuda")
        self.times += 1
        return fake.Tensor([self.compute(*numbers) for numbers in zip(*given)])


@pytest.fixture
def values(monkeypatch):
    """A layer that puts everything off, and keeps everything that it computes twice."""
    fake.counter(monkeypatch, known_module)
    monkeypatch.setattr(put_off_module, "LARGE_RESULT", 1)
    monkeypatch.setattr(module, "LEAST_BYTES", 16)
    monkeypatch.setattr(module, "bytes_of", lambda storage: tuple(storage.numbers))
    made = Values(fake.torch(), fake.Library())
    made.reads.log = None
    return made


def known(values, *numbers):
    tensor = fake.Tensor([0] * len(numbers), device="cuda")
    values.register(tensor).write(list(numbers))
    return tensor


def contents(values, tensor):
    return values.view(tensor, values.find(tensor)).tolist()


def sums(values, operator, *pairs):
    """The sums of two numbers and a third one, each from tensors that are made for it alone."""
    return [contents(values, values.call(operator, "add", (known(values, *pair), 10), {})) for pair in pairs]


def test_other_contents_are_another_expression(values):
    add = Operator(lambda one, other: one + other)
    assert sums(values, add, (1, 2), (1, 2), (1, 2), (1, 3), (1, 2)) == [[11, 12], [11, 12], [11, 12], [11, 13], [11, 12]]
    assert add.times == 3


def test_a_written_operand_is_not_answered_by_what_it_was(values):
    add, tensor, found = Operator(lambda one, other: one + other), known(values, 1, 2), []
    add_in_place = lambda one, other: one.write([number + other for number in one.tolist()])
    for _ in range(4):
        found.append(contents(values, values.call(add, "add", (tensor, 10), {})))
        values.call(add_in_place, "add_", (tensor, 1), {})
    assert found == [[11, 12], [12, 13], [13, 14], [14, 15]]


def test_who_writes_a_kept_result_writes_a_copy(values):
    add = Operator(lambda one, other: one + other)
    add_in_place = lambda one, other: one.write([number + other for number in one.tolist()])
    found = []
    for _ in range(5):
        out = values.call(add, "add", (known(values, 1, 2), 10), {})
        before = contents(values, out)
        values.call(add_in_place, "add_", (out, 100), {})
        found.append((before, contents(values, out)))
    assert found == [([11, 12], [111, 112])] * 5 and add.times == 2


def work(function, *args, dtype="float32"):
    values = types.SimpleNamespace(held_bytes=0)
    made = Work(values, function, "mul", args, {}, [])
    twin = types.SimpleNamespace(bytes=1 << 20, work=made)
    made.made.append(types.SimpleNamespace(twin=twin, bytes=twin.bytes, dtype=dtype, shape=(2,), strides=(1,), offset=0))
    return made


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), ([1], (1,)), (slice(1), slice(None, 1, 1)), ("1", 1)])
def test_arguments_that_are_equal_to_python_alone_differ(one, other):
    stored, add = Stored(fake.torch(), Place), Operator(None)
    assert stored.number(work(add, one)) == stored.number(work(add, one)) != stored.number(work(add, other))


def test_the_type_of_a_result_is_part_of_it():
    stored, add = Stored(fake.torch(), Place), Operator(None)
    assert stored.number(work(add, 1)) != stored.number(work(add, 1, dtype="float64"))


def test_a_function_of_the_script_and_what_is_not_plain_have_no_number():
    stored = Stored(fake.torch(), Place)
    assert stored.number(work(lambda: None, 1)) is None
    assert stored.number(work(Operator(None), object())) is None


def test_no_more_is_kept_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    stored = Stored(fake.torch(), Place)
    for key in "abc":
        assert (stored.offer(key, key, 40), stored.offer(key, key, 40)) == (False, True)
    assert [stored.find(key) for key in "abc"] == [None, "b", "c"] and stored.bytes == 80
    assert not stored.offer("d", "d", 101) and not stored.offer("d", "d", 101)


def test_numbers_are_not_given_twice(monkeypatch):
    monkeypatch.setattr(module, "MOST_NUMBERS", 4)
    stored = Stored(fake.torch(), Place)
    numbers = [stored.number(work(Operator(None), number)) for number in range(20)]
    assert len(set(numbers)) == 20 and len(stored.numbers) <= 4


def test_no_operator_that_draws_random_numbers_is_put_off():
    drawing = "rand randn randint randperm normal normal_ uniform_ bernoulli bernoulli_ dropout dropout_ multinomial rand_like randn_like exponential_ empty empty_like"
    assert not PUT_OFF & set(drawing.split())


def test_what_nobody_reads_is_gone_with_its_tensor(values):
    """Not only once Python's garbage collector runs: a training puts off pictures in every step."""
    add = Operator(lambda one, other: one + other)
    one = known(values, 1, 2, 3, 4)
    made = values.call(add, "add", (one, 10), {})
    assert values.find(made).work is not None and values.held_bytes > 0
    gc.disable()
    try:
        values.twins.clear()
        del made
        assert values.held_bytes == 0 and add.times == 0
    finally:
        gc.enable()
