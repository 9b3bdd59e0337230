"""As much of PyTorch as a rehearsal touches, without a card: its allocator counts what scripts say."""

import pickle
import types

__version__ = "0.0+stand-in"
version = types.SimpleNamespace(cuda="13.0")


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    def __init__(self, address=0):
        self.address, self.is_cuda, self.grad, self.requires_grad = address, True, None, True
        self.is_leaf, self.grad_fn = True, None

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.address)


class _DisableTorchFunction:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def save(what, path):
    with open(path, "wb") as file:
        pickle.dump(what, file)


def load(path):
    with open(path, "rb") as file:
        return pickle.load(file)


from . import _C, cuda, nn, optim  # noqa: E402, F401
