"""Lines that refuse zero."""

import math
import sys

import pytest

from _vramlab_rehearsal.values.raising import refuses_zero


class Number:
    """Notes whether the line that reads it refuses zero, and is one."""

    refuses = None

    def item(self):
        frame = sys._getframe(1)
        self.refuses = refuses_zero(frame.f_code.co_filename, frame.f_lineno)
        return 1.0

    def __float__(self):
        return self.item()


def ratio(x):
    return 10 * math.log10(1 / x.item())


def logarithm(x):
    return math.log(x.item())


def of_several_lines(x):
    return (
        100
        / x.item()
    )


def mean(x):
    return x.item() / 4


def logged(x):
    return f"loss {x.item():.2f}"


@pytest.mark.parametrize(("script", "refuses"), [(ratio, True), (logarithm, True), (of_several_lines, True), (mean, False), (logged, False)])
def test_a_line_refuses_zero(script, refuses):
    x = Number()
    script(x)
    assert x.refuses is refuses
