"""The count of steps."""

from _vramlab_rehearsal.boot.steps import Steps


class Optimizer:
    def __init__(self, *parameters):
        self.param_groups = [{"params": list(parameters)}]


def test_the_optimizer_with_the_most_steps_counts():
    steps, one, other = Steps(), Optimizer(object()), Optimizer(object())
    assert [steps.count(one), steps.count(other), steps.count(one), steps.count(one)] == [1, 1, 2, 3]


def test_an_optimizer_that_is_made_anew_goes_on():
    steps, parameter = Steps(), object()
    for epoch in range(3):
        optimizer = Optimizer(parameter)
        steps.made(optimizer)
        assert [steps.count(optimizer), steps.count(optimizer)] == [2 * epoch + 1, 2 * epoch + 2]


def test_two_optimizers_of_the_same_parameters_count_apart():
    steps, parameter = Steps(), object()
    one, other = Optimizer(parameter), Optimizer(parameter)
    steps.made(one), steps.made(other)
    assert [steps.count(one), steps.count(other), steps.count(one), steps.count(other)] == [1, 1, 2, 2]


def test_an_optimizer_without_parameters_is_counted():
    steps, empty = Steps(), Optimizer()
    assert [steps.count(empty), steps.count(empty)] == [1, 2]


def test_a_new_optimizer_at_an_old_ones_place_is_new():
    steps, one = Steps(), Optimizer(object())
    steps.count(one)
    known = steps.known.pop(id(one))
    other = Optimizer(object())
    steps.known[id(other)] = known
    assert steps.count(other) == 1


def test_a_fork_starts_anew():
    steps, one = Steps(), Optimizer(object())
    steps.count(one)
    steps.clear()
    assert (steps.total, steps.count(one)) == (0, 1)
