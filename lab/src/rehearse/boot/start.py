"""Runs at the start of every Python of a rehearsal, and waits until the program imports `torch`.

Written for any Python from 3.8 on: a script may start others. Nothing here may end the program that it watches.
The launcher puts `start.py`, `roles.py`, `growth.py`, `periods.py`, `lines.py`, `answer.py`, `world.py`, `watch.py`, `withhold.py`, `made_up.py` and `end.py` together as one text."""

import importlib.machinery
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "settings.json"), encoding="utf-8") as _file:
    SETTINGS = json.load(_file)
ANSWERS = SETTINGS["answers"]


def write_whole(name, text):
    """Writes a file of the answer under a temporary name and renames it, so that a reader never sees half of one."""
    path = os.path.join(ANSWERS, name)
    beside = "%s.%d.part" % (path, os.getpid())
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
                write_whole("%d.fault" % os.getpid(), text[:2000])
            except Exception:
                pass
            return None

    return call


class Loader:
    """Wraps a loader, and calls a function on the module after it was loaded."""

    def __init__(self, loader, after):
        self.loader = loader
        self.after = after

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        # The module keeps its own loader, for code that asks for it later.
        module.__loader__ = self.loader
        module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.after(module)


class Finder:
    """Comes before the other finders, and stays: libraries ask `find_spec("torch")` long before they import it."""

    def __init__(self, after):
        self.after = after
        self.busy = set()

    def find_spec(self, name, path=None, target=None):
        after = self.after.get(name)
        if after is None or name in self.busy:
            return None
        if name == "torch":
            guarded(write_whole)("%d.imports" % os.getpid(), "")
        self.busy.add(name)
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if finder is not self and find else None
                if spec is not None:
                    break
            else:
                return None
        finally:
            self.busy.discard(name)
        if spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader, guarded(after))
        return spec


def users_own():
    """Runs the `sitecustomize` that would have run without this one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


