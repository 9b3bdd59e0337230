"""An estimate in this process, by the library for C; without that library, by the program."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Optional, Union, cast

from . import schemas
from ._binary import VramlabError, binary

# Names the library: libvramlab_c.so, made by `cargo build -p vramlab-capi`.
VARIABLE = "VRAMLAB_LIBRARY"


def estimate(configuration: Union[str, os.PathLike[str]], **arguments: Any) -> schemas.EstimateV1:
    """What a training takes on a card: ``lower_bytes``, ``expected_bytes``, ``upper_bytes``, and the same ``by_category``.

    ``configuration``: a network's name, a file that ``vramlab predict`` reads, or the text of a ``config.json``. ``arguments``: fields of a
    run, such as ``batch=4, sequence=2048, gpu="rtx4090"``. It may be called by several threads. With ``VRAMLAB_LIBRARY`` it is made
    in this process, otherwise by the program.

    Raises :class:`VramlabError` where there is no estimate, with the reason.
    """
    words = os.fspath(configuration), json.dumps(arguments)
    found = json.loads(_in_process(*words) or _by_the_program(*words))
    if "error" in found:
        raise VramlabError(found["error"]["message"])
    return cast(schemas.EstimateV1, found)


def _in_process(configuration: str, arguments: str) -> Optional[str]:
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    library = _library(named)
    answer = library.vramlab_estimate(configuration.encode(), arguments.encode())
    if not answer:
        raise VramlabError("there is no memory for the estimate")
    try:
        return ctypes.string_at(answer).decode()
    finally:
        library.vramlab_free(answer)


@cache
def _library(path: str) -> Any:
    if not Path(path).is_file():
        raise VramlabError(f"{VARIABLE}: {path}: no such file")
    try:
        library = ctypes.CDLL(path)
        library.vramlab_estimate.restype = ctypes.c_void_p
        library.vramlab_estimate.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        library.vramlab_free.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError) as error:
        raise VramlabError(f"{VARIABLE}: {path}: {error}") from error
    return library


def _by_the_program(configuration: str, arguments: str) -> str:
    words = [str(binary()), "estimate", "--", configuration, arguments]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    # A problem is an answer, too, with another code.
    if not done.stdout:
        raise VramlabError(done.stderr.strip() or "vramlab gave no estimate", done.returncode)
    return done.stdout
