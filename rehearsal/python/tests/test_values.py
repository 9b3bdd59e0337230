"""The layer that computes small tensors beside operators on a card."""

import fake_tensors as fake
import pytest

from _vramlab_rehearsal.values import known as known_module
from _vramlab_rehearsal.values.known import AS_BEFORE
from _vramlab_rehearsal.values.values import Values, is_known_index


@pytest.fixture
def values(monkeypatch):
    fake.counter(monkeypatch, known_module)
    made = Values(fake.torch(), fake.Library())
    # Where reads are told: no line of these tests lies outside.
    made.reads.log = None
    return made


def on_card(*numbers, dtype="int64"):
    return fake.Tensor(numbers, dtype, "cuda")


def operator(compute, dtype="int64"):
    """An operator: on a card it makes a tensor whose contents nobody has."""

    def run(*tensors, **_words):
        inputs = [one.tolist() if isinstance(one, fake.Tensor) else [one] for one in tensors]
        if any(getattr(one, "is_cuda", False) for one in tensors):
            return on_card(*[0] * len(inputs[0]), dtype=dtype)
        return fake.Tensor([compute(*numbers) for numbers in zip(*inputs)], dtype)

    return run


add = operator(lambda one, other: one + other)
either = operator(lambda one, other: one or other, "bool")


def known(values, *numbers, dtype="int64"):
    tensor = on_card(*[0] * len(numbers), dtype=dtype)
    values.register(tensor).write(list(numbers))
    return tensor


def contents(values, tensor):
    twin = values.find(tensor)
    return None if twin is None else values.view(tensor, twin).tolist()


def test_the_result_of_known_operands_is_known(values):
    out = values.call(add, "add", (known(values, 1, 2), known(values, 30, 40)), {})
    assert (out.is_cuda, contents(values, out), values.computed) == (True, [31, 42], 1)


def test_the_result_of_an_unknown_operand_is_not(values):
    out = values.call(add, "add", (known(values, 1), on_card(0)), {})
    assert contents(values, out) is None and values.computed == 0


def test_trained_weights_that_are_moved_are_not_computed(values, monkeypatch):
    monkeypatch.setattr(known_module, "ALWAYS_KEPT", 16)
    move = lambda one: on_card(*[0] * one.numel())
    weight, small, table = fake.Tensor([1, 2, 3]), fake.Tensor([4, 5]), fake.Tensor([6, 7, 8])
    weight.requires_grad = small.requires_grad = True
    found = [contents(values, values.call(move, "to", (one,), {})) for one in (weight, small, table)]
    assert found == [None, [4, 5], [6, 7, 8]]


def test_only_tensors_with_a_twin_are_looked_at_for_changes(values, monkeypatch):
    looked_at = []
    monkeypatch.setattr(values, "version", lambda tensor: looked_at.append(tensor) or tensor._version)
    mine, other = known(values, 1), on_card(0)
    looked_at.clear()
    values.call(lambda one, two: on_card(0), "lerp", (mine, other), {})
    assert looked_at and all(tensor is mine for tensor in looked_at)


def test_doubt_is_handed_on_and_told(values):
    tensor = known(values, 1)
    values.find(tensor).doubtful = AS_BEFORE
    out = values.call(add, "add", (tensor, known(values, 2)), {})
    assert values.find(out).doubtful == AS_BEFORE
    values.call(lambda one: one.tolist(), "tolist", (out,), {})
    [place] = values.reads.places.values()
    assert (place["event"], place["operator"], place["answer"]) == ("assumed", "tolist", AS_BEFORE)


def test_a_read_of_known_contents_is_answered(values):
    assert values.call(lambda one: one.tolist(), "tolist", (known(values, 7, 8),), {}) == [7, 8]


def test_one_operand_that_is_all_true_decides(values):
    out = values.call(either, "logical_or", (known(values, True, True, dtype="bool"), on_card(0, 0, dtype="bool")), {})
    assert contents(values, out) == [True, True]
    out = values.call(either, "logical_or", (known(values, True, False, dtype="bool"), on_card(0, 0, dtype="bool")), {})
    assert contents(values, out) is None


def test_fills_are_known_whatever_they_fill(values):
    out = values.call(operator(lambda one: 0), "zeros_like", (on_card(5, 6),), {})
    assert contents(values, out) == [0, 0]


def test_what_an_unknown_operator_changes_is_forgotten(values):
    tensor = known(values, 1, 2)

    def add_(one, _other):
        return one.write([0, 0])

    values.call(add_, "add_", (tensor, on_card(0, 0)), {})
    assert contents(values, tensor) is None


@pytest.mark.parametrize(("mask", "left"), [("bool", [5, 5]), ("int64", None)])
def test_a_mask_of_unknown_contents_chooses_none(values, mask, left):
    ends = known(values, 5, 5)

    def written(one, _mask, _value):
        return one.write([0, 0])

    values.call(written, "__setitem__", (ends, on_card(0, 0, dtype=mask), on_card(0, 0)), {})
    assert contents(values, ends) == left


def test_an_operator_that_the_host_refuses_is_not_known(values):
    def refuses(*tensors):
        if any(one.is_cuda for one in tensors):
            return on_card(0)
        raise NotImplementedError

    out = values.call(refuses, "add", (known(values, 1), known(values, 2)), {})
    assert contents(values, out) is None


def test_operators_inside_an_operator_are_left_alone(values):
    def outer(one, other):
        inner = values.call(add, "add", (one, other), {})
        assert contents(values, inner) is None
        return add(one, other)

    values.call(outer, "add", (known(values, 1), on_card(2)), {})
    assert not values.doing.now.busy


def test_each_result_is_shown_to_who_listens(values):
    begun, made = [], []
    values.begins, values.made = begun.append, made.append
    out = values.call(add, "add", (known(values, 1), known(values, 2)), {})
    assert (begun, made) == (["add"], [out])
    values.made = None
    values.call(add, "add", (known(values, 1), known(values, 2)), {})
    assert (begun, made) == (["add", "add"], [out])


def test_tensors_are_found_in_arguments(values):
    one, other, third = on_card(1), on_card(2), on_card(3)
    assert values.tensors([one, [other, (None, 1, "x")], slice(third, None)], []) == [one, other, third]


def test_arguments_are_replaced_for_the_host(values):
    tensor = known(values, 4)
    twins = {id(tensor): values.find(tensor)}
    replaced = values.replaced([tensor, {"a": "cuda:0"}, (2.5, None)], values.twins_of(twins))
    assert replaced[0].tolist() == [4] and not replaced[0].is_cuda
    assert replaced[1]["a"] is values.cpu and replaced[2] == (2.5, None)


@pytest.mark.parametrize(("index", "is_known"), [(3, True), (slice(1, None), True), (..., True), (None, True), ([1], False), (slice(fake.Tensor([1]), 2), False)])
def test_indices_that_give_a_view(index, is_known):
    assert is_known_index(index) is is_known


def test_a_tensor_of_the_host_in_memory_that_a_copy_had_is_known(values):
    fresh = fake.Tensor([1, 2])
    values.reads.carry(fresh.data_ptr(), 16, "cpu", ("?", "?"))
    values.call(lambda: fresh, "randperm", (), {})
    values.call(lambda one: one.tolist(), "tolist", (fresh,), {})
    assert not values.reads.places


def test_a_tensor_over_memory_of_another_package_is_still_a_copy(values):
    shared = fake.Tensor([1, 2])
    values.reads.carry(shared.data_ptr(), 16, "cpu", ("?", "?"))
    values.call(lambda: shared, "from_numpy", (), {})
    values.call(lambda one: one.tolist(), "tolist", (shared,), {})
    [place] = values.reads.places.values()
    assert place["operator"] == "tolist"


def test_known_numbers_as_the_sizes_of_a_view_are_shown(values):
    shown = []
    height, width = known(values, 2), known(values, 3)

    def view(_tensor, *_sizes):
        shown.append(len(values.library.shown))

    values.call(view, "view", (on_card(*range(6)), height, width, 1), {})
    values.call(view, "view", (on_card(*range(6)), 2, 3), {})
    assert shown == [2, 0], "plain sizes are read by nobody"


def test_an_unknown_number_is_one_where_zero_would_raise_an_error(values, monkeypatch):
    monkeypatch.setattr("_vramlab_rehearsal.values.raising.refuses_zero", lambda _file, _line: True)
    assert values.call(lambda _tensor: 0.0, "item", (on_card(0, dtype="float32"),), {}) == 1.0
    [place] = values.reads.places.values()
    assert place["answer"] == "1.0, or an error would be raised"
    assert values.call(lambda _tensor: 3.5, "item", (on_card(0, dtype="float32"),), {}) == 3.5


@pytest.mark.parametrize("shape, strides, found", [
    ((2, 8192, 4096), (8192, 1, 0), True),
    ((2, 8192, 4096), (8192 * 4096, 4096, 1), False),
    ((1 << 12, 1 << 12, 1 << 8), (1, 0, 0), False),
])
def test_a_mask_of_tokens_is_counted_in_the_width_of_a_network(values, shape, strides, found):
    wide = on_card(1)
    wide.numel, wide.stride = lambda: shape[0] * shape[1] * shape[2], lambda: strides
    wide.__class__ = type("Wide", (fake.Tensor,), {"shape": shape})
    assert values.has_few_elements(wide) is found and not values.is_small(wide)
