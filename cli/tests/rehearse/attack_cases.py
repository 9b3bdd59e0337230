"""What lists of attacks share: each case changes `files/NAME`, and returns whether it sees its change."""

import ctypes
import sys

CASES = []
LIBC = ctypes.CDLL(None, use_errno=True)


def case(function):
    CASES.append(function)
    return function


def read(path):
    with open(path, "rb") as file:
        return file.read()


def run():
    """Makes all changes and prints what was not seen; or, with an argument, the names of the cases."""
    if len(sys.argv) > 1:
        for function in CASES:
            print(function.__name__)
        return
    unseen = []
    for function in CASES:
        try:
            seen = function("files/" + function.__name__)
        except BaseException as error:
            seen = False
            print(function.__name__, repr(error), file=sys.stderr)
        if not seen:
            unseen.append(function.__name__)
    print("unseen:", unseen, file=sys.stderr)
    sys.exit(5 if unseen else 0)
