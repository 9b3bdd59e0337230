"""Finds the program, and runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

VARIABLE = "VRAMLAB_BINARY"
_NAME = "vramlab.exe" if sys.platform == "win32" else "vramlab"

# The program's own error, and beginnings of lines before it that explain it.
_ERROR = re.compile("^error: ", re.MULTILINE)
_REASONS = ("not built in: ", "warning: the script ")

# A command in a message, which is left as it is.
_COMMAND = re.compile(r"(`[^`]*`|\bvramlab (?:[a-z]+ )?[^,;()]*)")

# A flag in a message, with what clap writes after it.
_FLAG = re.compile(r"--([a-z][a-z0-9-]*)(?: <[^>]*>)?")

Word = Union[str, "os.PathLike[str]"]


class VramlabError(RuntimeError):
    """The program could not answer. ``code`` is its exit code, or ``None`` if it was not run."""

    def __init__(self, message: str, code: Optional[int] = None) -> None:
        super().__init__(message)
        self.code = code


class DoesNotFit(VramlabError):
    """A training does not fit, and the caller asked for an error in that case."""


@dataclass(frozen=True)
class Ran:
    """Result of a run of the program: its exit code, its output, and its JSON (``None`` if it wrote none)."""

    code: int
    text: str
    stderr: str
    json: Optional[dict[str, Any]]


def binary() -> Path:
    """Finds the program: the one that ``VRAMLAB_BINARY`` names, one installed with this package, or one on ``PATH``.

    Raises :class:`VramlabError` if there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if Path(named).is_file():
            return Path(named)
        raise VramlabError(f"{VARIABLE}: {named}: no such file")
    for folder in _beside():
        if (folder / _NAME).is_file():
            return folder / _NAME
    found = shutil.which("vramlab")
    if found is None:
        raise VramlabError(f"the program vramlab was not found beside this package or on PATH; {VARIABLE} can name it")
    return Path(found)


def _beside() -> Iterator[Path]:
    """Returns the folders in which pip installs programs: of this Python, of the user, of ``--target`` and ``--prefix``."""
    yield Path(sysconfig.get_path("scripts"))
    yield Path(sysconfig.get_path("scripts", "nt_user" if sys.platform == "win32" else "posix_user"))
    package = Path(__file__).resolve().parent
    yield package.parent / "bin"
    if len(package.parents) > 3:
        yield package.parents[3] / "bin"


def run(words: Sequence[Word], after: Sequence[Word] = (), *, cwd: Optional[Path] = None, stdin: Optional[str] = None) -> Ran:
    """Runs the program on these words, and reads its JSON. ``after``: what stands last, such as a script and its arguments.

    Exit codes 0 and 1 are answers (1: it does not fit, or a check failed). Raises :class:`VramlabError` on every other one.
    """
    with tempfile.TemporaryDirectory(prefix="vramlab-") as folder:
        file = Path(folder, "answer.json")
        command = [str(binary()), *map(str, words), "--color", "never", "--json", str(file), *map(str, after)]
        done = subprocess.run(command, cwd=cwd, input=stdin or "", capture_output=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode not in (0, 1):
            raise VramlabError(problem(done.stderr) or f"vramlab ended with code {done.returncode}", done.returncode)
        found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    return Ran(done.returncode, done.stdout, done.stderr, found)


def problem(stderr: str) -> str:
    """Returns the program's error and its reasons, or all of its messages if none is an error. Flags have the names of keyword arguments.

    What a script writes to standard error stands before it, and may have errors of its own.
    """
    error = _ERROR.search(stderr)
    reasons = [line for line in stderr[: error.start()].splitlines() if line.startswith(_REASONS)] if error else []
    said = stderr[error.end() if error else 0 :].partition("\nFor help: ")[0].strip()
    lines = [_COMMAND.split(line) for line in [*said.splitlines(), *reasons]]
    return "\n".join("".join(part if at % 2 else _FLAG.sub(_keyword, part) for at, part in enumerate(line)) for line in lines)


def _keyword(flag: re.Match[str]) -> str:
    return flag[1].replace("-", "_")


def answer(ran: Ran, schema: str) -> dict[str, Any]:
    """Returns the JSON of a run.

    Raises :class:`VramlabError` if there is none, or if it has another schema, as that of another release may.
    """
    if ran.json is None:
        raise VramlabError(problem(ran.stderr) or "vramlab wrote no answer", ran.code)
    if ran.json.get("schema") != schema:
        raise VramlabError(f"vramlab answered in {ran.json.get('schema')}, and this package reads {schema}", ran.code)
    return ran.json


def flags(given: dict[str, Any]) -> list[str]:
    """Converts keyword arguments to flags: ``clip_grad_norm=1.0`` is ``--clip-grad-norm 1.0``, ``tied=True`` is ``--tied``.

    ``None`` and ``False`` give no flag; a list gives the flag once for each element.
    """
    words: list[str] = []
    for name, value in given.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple)):
            words.extend(f"{flag}={one}" for one in value)
        else:
            # Joined, so that a flag before it that lacks its value does not take this one.
            words.append(f"{flag}={value}")
    return words
