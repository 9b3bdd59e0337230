"""What the script sees of the rehearsal: nothing."""

import sys
import traceback
import types

from _vramlab_rehearsal.boot import script
from _vramlab_rehearsal.boot.report import guarded


def hidden(function):
    """A function of the package that calls another."""
    scope = {"function": function}
    exec(compile("def call():\n    function()\n", "<vramlab>", "exec"), scope)
    return scope["call"]


def fails():
    raise ValueError("the script's")


def raised(function):
    try:
        function()
    except ValueError as error:
        return error
    raise AssertionError


def test_frames_of_the_rehearsal_are_left_out():
    error = raised(hidden(fails))
    assert len(traceback.extract_tb(error.__traceback__)) == 3
    names = [frame.name for frame in traceback.extract_tb(script.without(error.__traceback__))]
    assert names == ["raised", "fails"]


def test_a_traceback_of_nothing_else_stays():
    error = raised(hidden(fails))
    own = error.__traceback__.tb_next
    own.tb_next = None
    assert script.without(own) is own


def test_causes_are_shown_without_them_too():
    shown = []
    show = script.without_own_frames(lambda *words: shown.append(words))
    error, cause = raised(hidden(fails)), raised(hidden(fails))
    error.__cause__, cause.__context__ = cause, error
    show(ValueError, error, error.__traceback__)
    assert [len(traceback.extract_tb(one.__traceback__)) for one in (error, cause)] == [2, 2] and len(shown) == 1


def test_readers_of_tracebacks_leave_them_out():
    module = types.SimpleNamespace(walk_tb=traceback.walk_tb)
    script.after_traceback(module)
    walked = [frame.f_code.co_name for frame, _ in module.walk_tb(raised(hidden(fails)).__traceback__)]
    assert walked == ["raised", "fails"]


def test_code_of_the_package_has_no_file_name():
    assert guarded.__code__.co_filename == "<vramlab>"
    assert not hasattr(sys.modules["_vramlab_rehearsal.boot.report"], "__file__")
