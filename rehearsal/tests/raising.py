"""Where a program branches, the side is known on which no error is raised at once. Run by `tests/values.rs`, by any Python."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
sys.dont_write_bytecode = True
from _vramlab_rehearsal.values.raising import assumed_at  # noqa: E402


class Asked:
    """Notes what is assumed where its truth value is asked for."""

    assumed = "never asked"

    def __bool__(self):
        frame = sys._getframe(1)
        self.assumed = assumed_at(frame.f_code, frame.f_lasti)
        return bool(self.assumed)


def asserted(x):
    assert x, f"not {x}"


def asserted_not(x):
    assert not x


def raised(x):
    if x:
        raise ValueError("bad")


def raised_if_not(x):
    if not x:
        name = str(x)
        raise ValueError(
            f"bad {name}"
        )
    return 1


def one_of_two(x):
    assert x and True


def chosen(x):
    return 1 if x else 2


def both(x):
    if x:
        raise ValueError
    else:
        raise TypeError


def later(x):
    if x:
        for _ in ():
            pass
        raise ValueError


EXPECTED = [(asserted, True), (asserted_not, False), (raised, False), (raised_if_not, True), (one_of_two, True),
            (chosen, None), (both, None), (later, None), (bool, None)]

failed = 0
for function, expected in EXPECTED:
    asked = Asked()
    try:
        function(asked)
    except (ValueError, TypeError, AssertionError):
        pass
    if asked.assumed is not expected:
        failed += 1
        print(f"{function.__name__}: {asked.assumed}, expected {expected}")
sys.exit(1 if failed else 0)
