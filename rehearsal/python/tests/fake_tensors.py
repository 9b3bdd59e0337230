"""As much of PyTorch's tensors as the layer for values touches: a tensor is a list of numbers in a storage, on a card or on the host."""

import ctypes
import itertools
import sys
import types


class Storage:
    """Numbers, each of `size` bytes. On a card nobody reads them."""

    addresses = itertools.count(1 << 20, 1 << 12)

    def __init__(self, bytes, device="cpu"):
        self.numbers, self.bytes, self.device = [0] * max(bytes, 1), bytes, device
        self._cdata, self.address = id(self), next(Storage.addresses)

    def data_ptr(self):
        return self.address

    def nbytes(self):
        return self.bytes

    def clone(self):
        made = Storage(self.bytes, self.device)
        made.numbers = list(self.numbers)
        return made


class Tensor:
    """A dense tensor of one dimension."""

    layout, is_nested, requires_grad = "strided", False, False

    def __init__(self, numbers=(), dtype="int64", device="cpu", storage=None):
        self.dtype, self.device, self.is_cuda, self._version = dtype, device, device == "cuda", 0
        self.held = storage or Storage(8 * len(numbers), device)
        self.length = len(numbers)
        self.held.numbers[: self.length] = numbers

    shape = property(lambda self: (self.length,))

    def numel(self):
        return self.length

    def element_size(self):
        return 8

    def stride(self):
        return (1,)

    def storage_offset(self):
        return 0

    def untyped_storage(self):
        return self.held

    def data_ptr(self):
        return self.held.address

    def is_conj(self):
        return False

    is_neg = is_inference = is_conj

    def detach(self):
        made = Tensor(self.tolist(), self.dtype, self.device, self.held)
        made._version = self._version
        return made

    def tolist(self):
        return self.held.numbers[: self.length]

    def set_(self, storage, _offset, shape, _strides):
        self.held, self.length = storage, shape[0]
        return self

    def fill_(self, value):
        return self.write([value] * self.length)

    def copy_(self, other):
        return self.write(other.tolist())

    def write(self, numbers):
        self.held.numbers[: self.length], self._version = numbers, self._version + 1
        return self

    def flatten(self):
        return self

    def all(self):
        return all(self.tolist())

    def any(self):
        return any(self.tolist())


class Parameter(Tensor):
    """A parameter."""


class Device:
    """A device by its name."""

    def __init__(self, name):
        self.type = name


class Nothing:
    """A block that changes nothing."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class Reference:
    """A weak reference to a storage."""

    def __init__(self, storage):
        self.storage = storage

    def expired(self):
        return getattr(self.storage, "freed", False)


def torch():
    """The module."""
    threads = [4]
    names = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64"
    kinds = {name: sys.intern(name) for name in names.split()}
    return types.SimpleNamespace(
        **kinds,
        __file__="/site-packages/torch/__init__.py",
        Tensor=Tensor,
        UntypedStorage=Storage,
        strided="strided",
        device=Device,
        dtype=type("dtype", (), {}),
        layout=type("layout", (), {}),
        memory_format=type("memory_format", (), {}),
        nn=types.SimpleNamespace(Parameter=Parameter),
        multiprocessing=types.SimpleNamespace(reductions=types.SimpleNamespace(StorageWeakRef=Reference)),
        empty=lambda _count, dtype, device: Tensor((), dtype),
        is_inference_mode_enabled=lambda: False,
        no_grad=Nothing,
        get_num_threads=lambda: threads[-1],
        set_num_threads=threads.append,
        compiler=types.SimpleNamespace(is_compiling=lambda: False),
        cuda=types.SimpleNamespace(is_initialized=lambda: False),
        _C=types.SimpleNamespace(
            DisableTorchFunction=Nothing,
            _len_torch_dispatch_stack=lambda: 0,
            _functorch=types.SimpleNamespace(peek_interpreter_stack=lambda: None),
        ),
    )


class Library:
    """The functions of the preloaded library: they note what they are told."""

    def __init__(self):
        self.shown, self.queued, self.ranges = [], [], []

    def vramlab_rehearsal_show(self, address, _contents, bytes):
        self.shown.append((address, bytes))

    def vramlab_rehearsal_queue(self, number):
        self.queued.append(number)

    def vramlab_rehearsal_withdraw(self):
        self.shown.clear()

    def vramlab_rehearsal_written(self, room, _count):
        """The ranges that `ranges` has; -1 if anything may have been written."""
        if self.ranges is None:
            return -1
        for at, (first, count) in enumerate(self.ranges):
            room[2 * at], room[2 * at + 1] = first, count
        return len(self.ranges)


def counter(monkeypatch, module):
    """Puts a number in place of the library's counter of writes."""


    class Numbers(type):
        """`ctypes.c_uint64`: an array of them holds plain numbers, and the library has one of them."""

        def __mul__(cls, count):
            return ctypes.c_uint64 * count

    class Number(metaclass=Numbers):
        in_dll = staticmethod(lambda _library, _name: types.SimpleNamespace(value=0))

    monkeypatch.setattr(module, "ctypes", types.SimpleNamespace(c_uint64=Number))
