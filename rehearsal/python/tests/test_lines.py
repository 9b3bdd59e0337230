"""Lines of the forward pass for allocations of the backward pass."""

import types

import pytest

from _vramlab_rehearsal.boot.lines import MORE_WITH_LINES, BackwardLines


class Node:
    """A node of autograd."""

    def __init__(self, *following):
        self.metadata, self.hooks, self.next_functions = {}, [], [(one, 0) for one in following]

    def register_prehook(self, hook):
        self.hooks.append(hook)


class AddBackward0(Node):
    """A node of an addition."""


class AccumulateGrad(Node):
    """A node of a parameter."""


@pytest.fixture
def lines(settings, torch):
    torch.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(Node=Node))
    torch._C._cuda_getDevice = lambda: 0
    made = BackwardLines(torch)
    made.install(types.SimpleNamespace(made=None))
    return made


def result(torch, node):
    tensor = torch.Tensor()
    tensor.grad_fn = node
    return tensor


def test_nodes_are_marked_with_the_line_that_made_them(lines, torch):
    leaf = AccumulateGrad()
    inner = AddBackward0(leaf, None)
    node = AddBackward0(inner)
    lines.values.made((result(torch, node), 3))
    assert [len(one.hooks) for one in (node, inner, leaf)] == [1, 1, 0]
    torch.cuda.memory.allocate(512)
    node.hooks[0](None)
    [[card, number, place, name]] = lines.report()["marks"]
    assert (card, number, name) == (0, 1, "AddBackward0")
    assert lines.report()["places"][place][0][0] == __file__


def test_a_node_is_marked_once(lines, torch):
    node = AddBackward0()
    lines.made(result(torch, node))
    lines.made(result(torch, node))
    assert len(node.hooks) == 1


def test_the_first_steps_are_followed_and_later_ones_if_they_differ(lines):
    followed = []
    for step, requests in enumerate([(1,), (1,), (1,), (1,), (2,), (2,), (2,)], start=1):
        lines.after_step(step, requests)
        followed.append(lines.is_on)
    assert followed == [True, True, False, False, True, False, False]


def test_few_later_steps_are_followed(lines):
    lines.after_step(3, (1,))
    on = 0
    for step in range(4, 100):
        lines.after_step(step, (step,))
        on += lines.is_on
    assert on == MORE_WITH_LINES


def test_a_node_that_takes_no_hooks_ends_it(lines, torch):
    node = AddBackward0()
    del node.metadata
    lines.made(result(torch, node))
    assert not lines.is_on and lines.values.made is None
