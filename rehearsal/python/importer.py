"""Imports the package `_vramlab_rehearsal` from texts in memory, for any Python from 3.8 on. Written for `src/lib.rs`, which adds the texts.

The package has no folder, and none is searched: a script's own modules are found as without it. Its code has no file name, like the
interpreter's own code, so that a search for the script's lines skips it."""

import sys
from importlib.machinery import ModuleSpec


class Importer:
    """Finds and loads modules by their full names. Each is compiled when it is imported first."""

    def __init__(self, texts):
        self.texts = texts

    def find_spec(self, name, path=None, target=None):
        if name not in self.texts:
            return None
        return ModuleSpec(name, self, is_package=any(other.startswith(name + ".") for other in self.texts))  # type: ignore[arg-type]

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(compile(self.texts[module.__name__], "<vramlab>", "exec", dont_inherit=True), module.__dict__)


def add(texts):
    sys.meta_path.insert(0, Importer(texts))
