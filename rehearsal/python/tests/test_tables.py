"""Tables of pairs, beside what PyTorch computes. Needs PyTorch, on the host alone."""

import types

import pytest

torch = pytest.importorskip("torch")

from _vramlab_rehearsal.values import tables  # noqa: E402
from _vramlab_rehearsal.values.put_off import Place, PutOff  # noqa: E402
from _vramlab_rehearsal.values.stored import Stored  # noqa: E402


class Layer:
    """What a table asks the layer for: contents that are there."""

    def __init__(self):
        self.torch, self.stored = torch, Stored(torch, Place)
        self.kinds = {torch.bool, torch.int64, torch.float32}

    def finished(self, twin):
        return twin

    def placed(self, place):
        return place.over(torch, place.twin.storage)

    done, table = finished, PutOff.table


def twin(storage=None, work=None):
    return types.SimpleNamespace(storage=storage, work=work, table=None, number=None)


class Node:
    """A tensor that PyTorch has computed here, with the operator that was put off."""

    def __init__(self, tensor, holder=None):
        self.tensor, self.place = tensor, Place(tensor, holder or twin(tensor.untyped_storage()))

    def view(self, index):
        return Node(self.tensor[index], self.place.twin)


def operator(name, function, *operands, **words):
    made = function(*(one.tensor if isinstance(one, Node) else one for one in operands), **words)
    work = types.SimpleNamespace(name=name, function=function, args=tuple(one.place if isinstance(one, Node) else one for one in operands), kwargs=words, base=None)
    node = Node(made, twin(work=work))
    work.made = [node.place]
    return node


def overlaps(boxes, anchors, is_ratio=True):
    """As torchvision's `box_iou`, in its operators."""
    every = slice(None)
    one, other = Node(boxes), Node(anchors)
    first = operator("max", torch.max, one.view((every, None, slice(2))), other.view((every, slice(2))))
    last = operator("min", torch.min, one.view((every, None, slice(2, 4))), other.view((every, slice(2, 4))))
    sides = operator("clamp", torch.clamp, operator("sub", torch.sub, last, first), min=0)
    inside = operator("mul", torch.mul, sides.view((every, every, 0)), sides.view((every, every, 1)))
    if not is_ratio:
        return inside
    areas = [Node((given[:, 2] - given[:, 0]) * (given[:, 3] - given[:, 1])) for given in (boxes, anchors)]
    both = operator("add", torch.add, areas[0].view((every, None)), areas[1])
    return operator("div", torch.div, inside, operator("sub", torch.sub, both, inside))


def grid(side=110, stride=8):
    """Anchors of three shapes at each place: a number of them that fills no whole blocks."""
    y, x = torch.meshgrid(torch.arange(side) * stride, torch.arange(side) * stride, indexing="ij")
    shapes = torch.tensor([[-23.0, -11, 23, 11], [-16, -16, 16, 16], [-11, -23, 11, 23]])
    return (torch.stack([x, y, x, y], -1).view(-1, 1, 4) + shapes).reshape(-1, 4)


def boxes(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(count, 2, generator=generator) * 700
    return torch.cat([corners, corners + 20 + torch.rand(count, 2, generator=generator) * 100], 1)


@pytest.mark.parametrize("is_ratio", [True, False])
def test_every_entry_and_what_is_made_of_them_is_pytorchs(is_ratio):
    made = overlaps(boxes(6), grid(), is_ratio)
    table = tables.started(Layer(), made.place.twin.work)
    assert len(table.rows) < 0.2 * 6 * tables.blocks_of(made.tensor.shape[1])
    assert torch.equal(table.dense(), made.tensor)
    columns = [found.dense() for found in table.largest_of_columns()]
    for mine, true in ((columns, made.tensor.max(0)), (table.largest_of_rows(), made.tensor.max(1))):
        assert torch.equal(mine[0], true[0]) and torch.equal(mine[1], true[1])
    largest = table.largest_of_rows()[0][:, None]
    best = table.each(torch.eq, largest)
    assert torch.equal(best.dense(), made.tensor == largest)
    assert torch.equal(best.places(), torch.nonzero(made.tensor == largest))
    assert torch.equal(table.each(torch.ge, 0.3).dense(), made.tensor >= 0.3)
    assert table.each(torch.lt, 0.3).places() is None, "most entries are zero, and less"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_or_infinite_spoil_no_other_entry(bad):
    given, anchors = boxes(6), grid()
    anchors[777, 1], given[2, 2] = bad, bad
    made = overlaps(given, anchors)
    table = tables.started(Layer(), made.place.twin.work)
    assert table is None or torch.allclose(table.dense(), made.tensor, rtol=0, atol=0, equal_nan=True)
    if table is not None and made.tensor.isnan().any():
        assert table.largest_of_columns() is None and table.largest_of_rows() is None


def test_boxes_without_an_area_are_not_zero_over_zero_by_mistake():
    anchors = grid()
    anchors[5000:5010, 2:] = anchors[5000:5010, :2]
    given = boxes(6)
    given[1, 2:] = given[1, :2]
    made = overlaps(given, anchors)
    assert made.tensor.isnan().any()
    table = tables.started(Layer(), made.place.twin.work)
    assert table is None or torch.allclose(table.dense(), made.tensor, rtol=0, atol=0, equal_nan=True)


def test_boxes_that_cover_most_make_no_table():
    made = overlaps(torch.tensor([[0.0, 0, 900, 900]] * 5), grid())
    assert tables.started(Layer(), made.place.twin.work) is None


def test_a_box_that_overlaps_nothing_has_no_largest_entry_here():
    given = boxes(6)
    given[3] += 5000
    table = tables.started(Layer(), overlaps(given, grid()).place.twin.work)
    assert table.largest_of_rows() is None


@pytest.mark.parametrize("name", ["pow", "__rsub__", "atan2"])
def test_other_operators_make_no_table(name):
    made = overlaps(boxes(6), grid())
    made.place.twin.work.name = name
    assert tables.started(Layer(), made.place.twin.work) is None


def test_what_is_done_with_a_table():
    made, layer = overlaps(boxes(6), grid()), Layer()
    made.place.twin.table = tables.started(layer, made.place.twin.work)

    def done(name, function, *operands, **words):
        return tables.followed(layer, operator(name, function, *operands, **words).place.twin.work)

    assert torch.equal(done("__eq__", torch.eq, made, 0.25).dense(), made.tensor == 0.25)
    assert torch.equal(done("ge", torch.ge, made, Node(torch.rand(6, 1))).rest, torch.zeros(6, dtype=torch.bool))
    assert done("ge", torch.ge, made, Node(torch.rand(1))) is None
    assert done("add", torch.add, made, 1) is None
    part = made.view((slice(0, 3),))
    assert done("__eq__", torch.eq, part, 0.25) is None
    largest = types.SimpleNamespace(name="max", function=torch.max, args=(made.place,), kwargs={"dim": 0, "keepdim": True}, base=None)
    assert tables.followed(layer, largest) is None
    largest.kwargs = {"dim": -1}
    assert torch.equal(tables.followed(layer, largest)[1], made.tensor.max(1)[1])
