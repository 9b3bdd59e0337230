"""Runs at the start of every Python of a rehearsal, and waits until the program imports `torch`."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

from . import endings, settings
from .hooks import AFTER, AFTER_IN_WORLD
from .report import guarded, write_whole
from .script import without_own_frames


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
            guarded(write_whole)("%d%s" % (os.getpid(), endings.IMPORTS), "")
        self.busy.add(name)
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if finder is not self and find else None
                if spec is not None:
                    break
            else:
                if name == "torch":
                    guarded(write_whole)("%d%s" % (os.getpid(), endings.NO_TORCH), sys.executable or "")
                return None
        finally:
            self.busy.discard(name)
        if spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader, guarded(hook(after)))
        return spec


def hook(place):
    """Returns the function that a place in the package names, `module.function`. The module is imported when it is called."""
    module, _, name = place.partition(".")

    def after(loaded):
        return getattr(importlib.import_module("." + module, __package__), name)(loaded)

    return after


def users_own(here):
    """Runs the `sitecustomize` that would have run without this one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def keep_modules():
    """Takes the package's modules out of Python's list when the program ends: else Python empties them while destructors still run
    operators, which the package watches. What is registered first is called last."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "_vramlab_rehearsal"]:
        del sys.modules[name]


def run(file):
    """Starts the watch. `file` is the `sitecustomize.py` that does so, with `settings.json` beside it."""
    import atexit

    here = os.path.dirname(os.path.abspath(file))
    settings.read(here)
    atexit.register(keep_modules)
    after = dict(AFTER, **(AFTER_IN_WORLD if settings.SETTINGS["world"] else {}))
    for name in ("argparse", "traceback", "threading"):
        if name in sys.modules:
            guarded(hook(after.pop(name)))(sys.modules[name])
    sys.meta_path.insert(0, Finder(after))
    if settings.SETTINGS.get("make_data"):
        from . import made_up_data

        guarded(made_up_data.install)()
    sys.excepthook = without_own_frames(sys.excepthook)
    guarded(write_whole)("%d%s" % (os.getpid(), endings.PYTHON), "")
    users_own(here)
