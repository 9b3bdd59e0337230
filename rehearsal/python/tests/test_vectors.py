"""Vectors of which most elements are equal, beside what PyTorch computes. Needs PyTorch, on the host alone."""

import pytest

torch = pytest.importorskip("torch")

from test_tables import Layer, Node, boxes, grid, operator, overlaps  # noqa: E402

from _vramlab_rehearsal.values import tables, vectors  # noqa: E402
from _vramlab_rehearsal.values.vectors import Vector  # noqa: E402


def largest(shift=0):
    """The largest overlap of each anchor with a box, and the box, with what PyTorch computes of all overlaps. Anchors after the first
    `shift` fill other blocks."""
    made = overlaps(boxes(6), grid()[shift:])
    return tables.started(Layer(), made.place.twin.work).largest_of_columns(), made.tensor.max(0)


def node(vector, tensor):
    """The vector as the contents of a tensor on the card."""
    made = Node(tensor)
    made.place.twin.table = vector
    return made


def done(name, function, *operands, **words):
    return tables.followed(Layer(), operator(name, function, *operands, **words).place.twin.work)


def written(vector, tensor, index, value):
    """What `[]=` makes of a vector, and of all its elements."""
    target = node(vector, tensor.clone())
    target.tensor[index.tensor] = value.tensor if isinstance(value, Node) else value
    found = vectors.written(Layer(), vector, index.place, value.place if isinstance(value, Node) else value)
    return found, target.tensor


@pytest.mark.parametrize("shift", [0, 7, grid().shape[0] % 64])
def test_a_detectors_matching_is_pytorchs(shift):
    (values, rows), (true_values, true_rows) = largest(shift)
    assert len(values.blocks) < 0.5 * vectors.blocks_of(values.shape[0])
    assert torch.equal(values.dense(), true_values) and torch.equal(rows.dense(), true_rows)
    overlap, box = node(values, true_values), node(rows, true_rows)
    low = done("lt", torch.lt, overlap, 0.3)
    some = done("__and__", torch.logical_and, node(done("ge", torch.ge, overlap, 0.1), true_values >= 0.1), node(low, true_values < 0.3))
    assert torch.equal(some.dense(), (true_values >= 0.1) & (true_values < 0.3))
    matches, true = written(done("clone", torch.clone, box), true_rows, node(low, true_values < 0.3), -1)
    matches, true = written(matches, true, node(some, some.dense()), -2)
    assert torch.equal(matches.dense(), true)
    index = torch.nonzero(true_values > 0)[:40:3, 0]
    chosen = done("__getitem__", lambda tensor, index: tensor[index], box, Node(index))
    assert torch.equal(chosen, true_rows[index])
    matches, true = written(matches, true, Node(index), Node(chosen))
    assert torch.equal(matches.dense(), true)
    labels = done("to", torch.Tensor.to, node(done("ge", torch.ge, node(matches, true), 0), true >= 0), dtype=torch.float32)
    assert torch.equal(labels.dense(), (true >= 0).float())
    assert torch.equal(done("clamp", torch.clamp, node(matches, true), min=0).dense(), true.clamp(min=0))
    for found, all_of_it in ((labels.each(torch.ge, 1), true >= 0), (matches.each(torch.eq, -1), true == -1)):
        assert found.count() == int(torch.count_nonzero(all_of_it))
    assert torch.equal(labels.each(torch.ge, 1).places(), torch.nonzero(true >= 0))
    assert matches.each(torch.eq, -1).places() is None, "most are"


def test_elements_outside_of_the_blocks_are_the_rest():
    (values, _), (true_values, _) = largest()
    outside = torch.nonzero(true_values == 0)[:3, 0]
    assert torch.equal(values.at(outside), torch.zeros(3))
    assert values.written(outside, 1.0) is None, "a new block"
    assert values.at(torch.tensor([-1])) is None and values.at(torch.tensor([len(true_values)])) is None
    assert values.at(torch.tensor([True])) is None


def test_what_is_computed_from_all_elements():
    (values, rows), (true_values, true_rows) = largest()
    overlap, box = node(values, true_values), node(rows, true_rows)
    assert done("add", torch.add, box, 1) is None
    assert done("lt", torch.lt, overlap, Node(true_values)) is None
    assert done("to", lambda tensor, *_: tensor, box, "cpu") is None
    assert done("sum", torch.sum, overlap) is None
    half = Vector(torch, rows.shape[0], rows.blocks[::2], rows.entries[::2] > 0, rows.rest > 0)
    assert rows.filled(half, 1) is None, "a mask with other blocks"
    assert rows.filled(rows.each(torch.gt, 0), 1.5) is None, "a number that would be rounded"


def test_a_vector_without_blocks():
    empty = Vector(torch, 100, torch.zeros(0, dtype=torch.int64), torch.zeros(0, 64), torch.ones(1))
    assert torch.equal(empty.dense(), torch.ones(100)) and empty.count() == 100
    assert empty.at(torch.tensor([3])) is None
    assert torch.equal(empty.each(torch.lt, 1).places(), torch.zeros(0, 1, dtype=torch.int64))
