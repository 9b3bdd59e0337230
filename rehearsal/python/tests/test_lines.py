"""Lines of the forward pass for allocations of the backward pass."""

import types

import pytest

from _vramlab_rehearsal.boot.lines import AT_ONCE, MORE_WITH_LINES, BackwardLines


class Node:
    """A node of autograd."""

    made = 0

    def __init__(self, *following):
        self.metadata, self.hooks, self.next_functions = {}, [], [(one, 0) for one in following]
        self.number, Node.made = Node.made, Node.made + 1

    def _sequence_nr(self):
        return self.number

    def register_prehook(self, hook):
        self.hooks.append(hook)


class AddBackward0(Node):
    """A node of an addition."""


class AccumulateGrad(Node):
    """A node of a parameter."""


@pytest.fixture
def lines(settings, torch):
    torch.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(Node=Node), _get_sequence_nr=lambda: Node.made)
    torch._C._cuda_getDevice = lambda: 0
    made = BackwardLines(torch)
    made.install(types.SimpleNamespace(made=None, begins=None))
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


def step(lines, torch, names, before=None):
    """Makes an operator of each name on the result of the one before it, each at a line of its own; returns the nodes."""
    nodes = []
    for name in names:
        if lines.values.begins:
            lines.values.begins(name)
        node = before = AddBackward0(before)
        nodes.append(node)
        made = lines.values.made
        # A line of its own for each name, whatever calls it.
        exec(compile("\n" * ord(name) + "made and made(out)", "/home/me/train.py", "exec"), {"made": made, "out": result(torch, node)})
    return nodes


def lines_of(lines, nodes):
    lines.marks.clear()
    for node in nodes:
        for hook in node.hooks:
            hook(None)
    places = lines.report()["places"]
    return [chr(places[place][0][1] - 1) for _, _, place, _ in lines.marks]


def test_a_step_that_happens_once_is_followed_from_where_it_differs(lines, torch):
    for number in range(1, 6):
        nodes = step(lines, torch, "abcd")
        assert len(lines_of(lines, nodes)) == (4 if number <= 3 else 0)
        lines.after_step(number, (4,))
    nodes = step(lines, torch, "abxcd")
    assert lines_of(lines, nodes) == list("abxcd"), "operators before it have the lines of a step that had them, too"
    lines.after_step(6, (5,))
    # Once is enough.
    assert not step(lines, torch, "abxcd")[-1].hooks
    lines.after_step(7, (5,))
    assert not step(lines, torch, "abcd")[-1].hooks


def test_a_node_without_a_number_of_this_step_has_the_line_from_which_it_was_reached(lines, torch):
    for number in range(1, 4):
        step(lines, torch, "ab")
        lines.after_step(number, (1,))
    before = AddBackward0()
    lines.after_step(4, (1,))
    step(lines, torch, "a")
    [node] = step(lines, torch, "x", before)
    assert lines_of(lines, [node, before]) == ["x", "x"]


def test_a_step_of_the_same_operators_that_takes_more_memory_is_followed(lines, torch):
    held = {"requested_bytes": {"all": {"current": 1000}}, "allocation": {"all": {"allocated": 0}}}
    torch._C._cuda_memoryStats = lambda card: held
    for number in range(1, 6):
        nodes = step(lines, torch, "abc")
        lines.before_backward([result(torch, nodes[-1])])
        assert bool(nodes[-1].hooks) == (number <= 3)
        lines.after_step(number, (4,))
    for current, is_followed in ((1009, False), (900, False), (2000, True), (1500, False), (2000, False), (3000, True)):
        held["requested_bytes"]["all"]["current"] = current
        nodes = step(lines, torch, "abc")
        assert not nodes[-1].hooks
        lines.before_backward([result(torch, nodes[-1])])
        assert lines_of(lines, nodes) == (list("abc") if is_followed else []), current
        lines.after_step(6, (4,))


def test_few_steps_are_followed_at_once(lines, torch):
    for number in range(1, 4):
        step(lines, torch, "a")
        lines.after_step(number, (1,))
    followed = 0
    for number in range(4, 4 + 2 * AT_ONCE):
        followed += bool(step(lines, torch, chr(ord("a") + number))[-1].hooks)
        lines.after_step(number, (1,))
    assert followed == AT_ONCE
    assert lines.values.begins is None


def test_without_numbers_of_nodes_no_step_is_followed_at_once(settings, torch):
    torch.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(Node=Node))
    torch._C._cuda_getDevice = lambda: 0
    lines = BackwardLines(torch)
    lines.install(types.SimpleNamespace(made=None, begins=None))
    for number in range(1, 4):
        step(lines, torch, "a")
        lines.after_step(number, (1,))
    assert lines.values.begins is None and not step(lines, torch, "b")[0].hooks


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
    assert not lines.is_on and lines.values.made is lines.values.begins is None


def test_what_checkpointing_makes_again_is_marked_at_its_own_lines(settings, torch):
    node, modes = AddBackward0(), []

    class CheckpointFunction:
        @staticmethod
        def backward(gradient):
            for mode in modes:
                mode.__torch_function__(lambda: result(torch, node), ())
            return gradient

    class TorchFunctionMode:
        def __enter__(self):
            modes.append(self)

        def __exit__(self, *error):
            modes.remove(self)

    torch.overrides = types.SimpleNamespace(TorchFunctionMode=TorchFunctionMode, _get_current_function_mode=lambda: None)
    torch.utils = types.SimpleNamespace(checkpoint=types.SimpleNamespace(CheckpointFunction=CheckpointFunction))
    torch.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(Node=Node), _get_sequence_nr=lambda: Node.made)
    torch._C._cuda_getDevice = lambda: 0
    lines = BackwardLines(torch)
    lines.install(types.SimpleNamespace(made=None, begins=None))
    assert CheckpointFunction.backward(3) == 3 and modes == []
    node.hooks[0](None)
    [[_, _, place, name]] = lines.report()["marks"]
    assert name == "AddBackward0" and lines.report()["places"][place][0][0] == __file__
    lines.turn(False)
    assert CheckpointFunction.backward(4) == 4 and len(node.hooks) == 1
