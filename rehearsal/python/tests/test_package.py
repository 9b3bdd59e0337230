"""How the package is imported: from memory, beside whatever modules a script has."""

import importlib
import subprocess
import sys

from from_memory import program, texts

from _vramlab_rehearsal.boot import hooks


def ran(text, *flags, folder=None):
    done = subprocess.run([sys.executable, *flags, "-"], input=text, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_hook_is_a_function_of_the_package():
    for place in [*hooks.AFTER.values(), *hooks.AFTER_IN_WORLD.values()]:
        module, _, name = place.partition(".")
        assert callable(getattr(importlib.import_module(f"_vramlab_rehearsal.boot.{module}"), name)), place


def test_an_isolated_python_imports_it_from_memory():
    text = program("from _vramlab_rehearsal.values.start import install\n") + (
        "print(install.__module__, install.__code__.co_filename, hasattr(sys.modules[install.__module__], '__file__'))\n"
        "print([entry for entry in sys.path if 'rehearsal' in entry])\n"
    )
    assert ran(text, "-I", "-S") == "_vramlab_rehearsal.values.start <vramlab> False\n[]\n"


def test_modules_of_a_script_keep_their_names(tmp_path):
    names = [name.rpartition(".")[2] for name in texts() if "." in name]
    for name in names:
        (tmp_path / f"{name}.py").write_text("WHOSE = 'the script'\n")
    text = program("import _vramlab_rehearsal.boot.start, _vramlab_rehearsal.values.start\n")
    text += f"import importlib\nprint({{importlib.import_module(name).WHOSE for name in {names!r}}})\n"
    assert ran(text, folder=tmp_path) == "{'the script'}\n"


def test_what_waits_for_torch_imports_little():
    text = program("import _vramlab_rehearsal.boot.start\n")
    text += "print(*sorted(name for name in sys.modules if name.startswith('_vramlab_rehearsal.')), 'typing' in sys.modules)\n"
    own = ["boot", *(f"boot.{name}" for name in ("endings", "hooks", "report", "script", "settings", "start"))]
    assert ran(text, "-I", "-S").split() == [*(f"_vramlab_rehearsal.{name}" for name in own), "False"]


def test_destructors_at_the_end_still_find_the_package():
    text = program("import _vramlab_rehearsal.boot.start as start\nimport atexit\natexit.register(start.keep_modules)\n")
    text += (
        "from _vramlab_rehearsal.boot.places import line_of\n"
        "class Last:\n"
        "    def __init__(self):\n"
        "        self.line_of, self.frame = line_of, sys._getframe\n"
        "    def __del__(self):\n"
        "        print(self.line_of.__globals__['is_library'] is not None, flush=True)\n"
        "sys.modules['last'] = Last()\n"
        "del start, line_of\n"
    )
    assert ran(text) == "True\n"
