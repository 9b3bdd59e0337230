"""Files for the launcher."""

import _thread
import os

from .endings import FAULT
from .settings import SETTINGS


def write_whole(name, text):
    """Writes a file of the answer under a temporary name and renames it, so that a reader never sees half of one."""
    path = os.path.join(SETTINGS["answers"], name)
    # Two threads may write one file.
    beside = "%s.%d.%d.part" % (path, os.getpid(), _thread.get_ident())
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(beside, path)


def guarded(function):
    """Wraps a function: its errors are reported to the launcher, not to the script."""

    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            import traceback

            try:
                last = traceback.extract_tb(error.__traceback__)[-1]
                text = "%s: %s (%s:%d)" % (type(error).__name__, error, os.path.basename(last.filename), last.lineno)
                write_whole("%d%s" % (os.getpid(), FAULT), text[:2000])
            except Exception:
                pass
            return None

    return call
