"""What is done when a Python starts, and when modules of others are loaded."""

import os
import subprocess
import sys

import pytest
from from_memory import program

from _vramlab_rehearsal.boot import report, start


def test_an_error_of_ours_is_told_and_does_not_reach_the_script(answers):
    def fails():
        raise ValueError("ours")

    assert report.guarded(fails)() is None
    text = (answers / f"{os.getpid()}.fault").read_text()
    assert text.startswith("ValueError: ours (test_start.py:"), text


def test_files_are_written_whole(answers):
    report.write_whole("1.json", "{}")
    assert [path.name for path in answers.iterdir()] == ["1.json"]


def test_the_users_own_sitecustomize_runs_and_modules_are_watched(tmp_path):
    own, theirs, answers = tmp_path / "run", tmp_path / "theirs", tmp_path / "answers"
    for folder in (own, theirs, answers):
        folder.mkdir()
    (theirs / "sitecustomize.py").write_text("import os\nos.environ['USERS_OWN'] = 'ran'\n")
    (theirs / "wandb.py").write_text("def init(**words):\n    return words\n")
    (own / "settings.json").write_text('{"answers": "%s", "world": null}' % answers)
    (own / "sitecustomize.py").write_text(program("from _vramlab_rehearsal.boot import start\n\nstart.run(__file__)\n"))
    script = (
        "import os, sys, wandb\n"
        "print(os.environ['USERS_OWN'], wandb.init(mode='online'), wandb.login('key'), wandb.__file__ == wandb.__spec__.origin)\n"
        f"print({str(own)!r} in sys.path, type(wandb.__loader__).__name__)\n"
    )
    path = os.pathsep.join([str(own), str(theirs)])
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ran {'mode': 'disabled'} True True\nFalse SourceFileLoader\n"
    assert [path.suffix for path in answers.iterdir()] == [".python"]


def test_a_finder_steps_aside_for_others(settings):
    finder = start.Finder({"a_module_that_is_nowhere": "script.after_traceback"})
    assert finder.find_spec("json") is None
    assert finder.find_spec("a_module_that_is_nowhere") is None
    assert not finder.busy


def test_a_python_without_pytorch_tells_its_path(settings, answers, monkeypatch):
    finder = start.Finder({"torch": "watch.after_torch"})
    monkeypatch.setattr(sys, "meta_path", [finder])
    assert finder.find_spec("torch") is None
    assert (answers / f"{os.getpid()}.no-torch").read_text() == sys.executable


@pytest.mark.parametrize("name", ["traceback", "threading"])
def test_a_hook_imports_its_module_when_it_is_called(name):
    from _vramlab_rehearsal.boot import hooks

    assert callable(start.hook(hooks.AFTER[name]))
