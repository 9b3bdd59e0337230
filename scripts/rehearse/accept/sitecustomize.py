"""Lets torchvision take made data of CIFAR, whose check sums cannot be those of the real ones.

`run.py` puts this folder on PYTHONPATH for the scripts that need it; no file of theirs is changed."""

import importlib.abc
import importlib.machinery
import sys


class Accept(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torchvision.datasets.cifar":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module.check_integrity = lambda *_: True

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Accept())
