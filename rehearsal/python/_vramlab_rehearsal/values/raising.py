"""Finds the side of a branch, and the number, that raises no error, so that a script that works with unknown numbers continues."""

import ast
import dis
import functools
import sys

from .branches import covers, name_of, parsed

# Functions of Python and numpy that refuse zero.
REFUSING_ZERO = ("log", "log2", "log10")


def next_of(instructions, index):
    """Returns the next instruction that does something."""
    index += 1
    while index < len(instructions) and instructions[index].opname in ("CACHE", "NOT_TAKEN", "NOP", "EXTENDED_ARG", "COPY_FREE_VARS"):
        index += 1
    return index


def raises(instructions, index):
    """True if straight code ends in an error."""
    while index < len(instructions):
        name = instructions[index].opname
        if name == "RAISE_VARARGS":
            return True
        if "JUMP" in name or name.startswith(("RETURN", "YIELD", "RERAISE", "FOR_ITER", "SEND")):
            return False
        index = next_of(instructions, index)
    return False


@functools.lru_cache(maxsize=4096)
def assumed_at(code, offset):
    """Returns the truth value to assume at a branch: the one after which no error is raised immediately.
    None if neither side raises one, or both do."""
    instructions = list(dis.get_instructions(code))
    at = {instruction.offset: index for index, instruction in enumerate(instructions)}
    index = at.get(offset)
    if index is None:
        return None
    # Python 3.13 has an instruction of its own for the truth value.
    if instructions[index].opname == "TO_BOOL":
        index = next_of(instructions, index)
    inverted = False
    while index < len(instructions) and instructions[index].opname == "UNARY_NOT":
        inverted, index = not inverted, next_of(instructions, index)
    if index >= len(instructions):
        return None
    jump = instructions[index]
    if "JUMP" not in jump.opname or not ("IF_TRUE" in jump.opname or "IF_FALSE" in jump.opname):
        return None
    jumps_if = "IF_TRUE" in jump.opname
    here, there = raises(instructions, next_of(instructions, index)), raises(instructions, at.get(jump.argval, len(instructions)))
    if here == there:
        return None
    return (jumps_if if here else not jumps_if) != inverted


def caller():
    """Returns the frame that called an operator."""
    frame = sys._getframe()
    own = frame.f_code.co_filename
    while frame.f_code.co_filename == own:
        frame = frame.f_back
    return frame


@functools.lru_cache(maxsize=4096)
def refuses_zero(file, line):
    """True if a line divides by what it reads, or takes its logarithm: `10 * log10(1 / mse.item())`."""
    tree = parsed(file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod)) and covers(node, line):
            parts = [node.right]
        elif isinstance(node, ast.Call) and covers(node, line) and name_of(node.func) in REFUSING_ZERO:
            parts = node.args
        else:
            continue
        calls = [one.func for part in parts for one in ast.walk(part) if isinstance(one, ast.Call)]
        if any(name_of(call) in ("item", "float") for call in calls):
            return True
    return False


def number(values, function, name, args):
    """Returns a number for unknown contents: one, where zero would raise an error immediately."""
    found = function(*args)
    frame = caller()
    if type(found) is not float or found != 0.0 or not refuses_zero(frame.f_code.co_filename, frame.f_lineno):
        return found
    values.reads.tell("assumed", name, "values", answer="1.0, or an error would be raised")
    return 1.0


def branch(values, function, args):
    """Returns a truth value for unknown contents: if one value would raise an error immediately, the other one is assumed."""
    frame = caller()
    assumed = assumed_at(frame.f_code, frame.f_lasti)
    if assumed is None:
        return function(*args)
    values.doing.now.quiet = True
    function(*args)
    values.reads.tell("assumed", "__bool__", "values", answer=f"{assumed}, or an error would be raised")
    return assumed
