"""The fixture ``vram``: a test fails if a training takes more memory than its lock file allows.

::

    def test_memory(vram):
        vram.check("config.json", batch=4, sequence=2048, gpu="rtx4090")

``pytest --vram-update`` writes what the runs take into ``FILE.vram.json`` beside the test's file; without it they are compared.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, cast

import pytest

from . import schemas
from ._answers import Checked
from ._binary import VramlabError, Word, answer, flags, problem, run
from ._model import network
from ._predict import words_of


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--vram-update``."""
    group = parser.getgroup("vramlab")
    group.addoption("--vram-update", action="store_true", help="write what the runs of vram.check take into their lock files")


class Vram:
    """Checks runs of one test."""

    def __init__(self, lock: Path, test: str, update: bool) -> None:
        #: The lock file.
        self.lock = lock
        self._test = test
        self._update = update
        self._checks = 0

    def check(
        self,
        model: Any,
        *args: Any,
        inputs: Optional[Mapping[str, Any]] = None,
        batch: Optional[int] = None,
        gpu: Optional[str] = None,
        optimizer: Any = None,
        name: Optional[str] = None,
        tolerance: str = "0",
        **settings: Any,
    ) -> Checked:
        """Fails the test when the run takes more than is locked, beyond ``tolerance`` (``"1MiB"``, ``"2%"``), or does not fit ``gpu``.

        The other arguments are those of :func:`vramlab.predict`. ``name``: the run in the file; the test's name by default. A model of
        transformers needs example inputs here.
        """
        self._checks += 1
        name = name or (self._test if self._checks == 1 else f"{self._test} #{self._checks}")
        with tempfile.TemporaryDirectory(prefix="vramlab-") as folder:
            found = network(model, args, inputs, Path(folder))
            if found.held_bytes is not None:
                raise VramlabError(f"{type(model).__name__}: give example inputs")
            words = {**found.in_flags(), **words_of(found, optimizer, dict(settings, batch=batch, gpu=gpu))}
            cwd = self._placed(words, Path(folder))
            return self._checked(name, words, tolerance, cwd)

    def _placed(self, words: dict[str, Any], folder: Path) -> Path:
        """Renames the network's file so that the lock file can keep the name; returns the folder that the name is relative to."""
        path = words.get("model_file")
        if path is None:
            return self.lock.parent
        if Path(path).parent == folder:
            words["model_file"] = Path(path).name
            return folder
        words["model_file"] = Path(os.path.relpath(path, self.lock.parent)).as_posix()
        return self.lock.parent

    def _checked(self, name: str, words: dict[str, Any], tolerance: str, cwd: Path) -> Checked:
        command: list[Word] = ["check", "--baseline", self.lock, "--name", name, "--tolerance", tolerance, *flags(words)]
        if self._update:
            command.append("--update")
        else:
            self._same_run(name, words)
        ran = run(command, cwd=cwd)
        if ran.json is None:
            pytest.fail(f"{name}: {problem(ran.stderr)}", pytrace=False)
        found = cast(schemas.CheckV1, answer(ran, "vramlab-check-1"))
        if ran.code != 0:
            pytest.fail(f"{ran.text.rstrip()}\n{problem(ran.stderr)}\nIf that was meant: pytest --vram-update", pytrace=False)
        return Checked(ran.text, found, next(one for one in found["runs"] if one["name"] == name))

    def _same_run(self, name: str, words: dict[str, Any]) -> None:
        """Fails if the lock file lacks this run, or has it with other flags: both runs must be of the same training."""
        runs: dict[str, Any] = {}
        if self.lock.is_file():
            runs = json.loads(self.lock.read_text(encoding="utf-8")).get("runs", {})
        if name not in runs:
            pytest.fail(f"{self.lock}: {name} is not locked yet: pytest --vram-update", pytrace=False)
        locked = {flag: _said(value) for flag, value in runs[name]["flags"].items()}
        now = {key.rstrip("_").replace("_", "-"): _said(value) for key, value in words.items() if value is not None and value is not False}
        different = sorted(flag for flag in {*locked, *now} if locked.get(flag) != now.get(flag))
        if different:
            said = ", ".join(f"{flag}: {locked.get(flag, 'not said')}, now {now.get(flag, 'not said')}" for flag in different)
            pytest.fail(f"{name} is another run than the locked one ({said}): pytest --vram-update", pytrace=False)


def _said(value: Any) -> str:
    """Returns a flag's value in one form, however it was written: numbers by their value."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    try:
        return repr(float(value)) if not isinstance(value, bool) else str(value)
    except (TypeError, ValueError):
        return str(value)


@pytest.fixture
def vram(request: pytest.FixtureRequest) -> Vram:
    """Checks the memory of trainings against the lock file next to the test's file (``test_x.py``: ``test_x.vram.json``)."""
    test = request.node.nodeid.partition("::")[2] or request.node.name
    return Vram(request.path.with_suffix(".vram.json"), test, bool(request.config.getoption("--vram-update")))
