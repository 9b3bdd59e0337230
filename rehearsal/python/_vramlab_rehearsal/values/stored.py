"""Results of operators that were put off, kept for the next time that the same is computed from the same: anchors depend on nothing but
sizes, and a script may show its network one batch again and again.

An expression is its operators, their arguments and the contents of its operands, never a tensor: contents that were written are others.
Equal expressions have one number. No such operator draws random numbers (`PUT_OFF` in `operators.py`). What is kept is never written:
its twins are `shared`, and who writes one gets a copy. Written for `put_off.py`."""

import collections
import ctypes
import hashlib
import itertools
import types

# Most bytes that are kept, and most expressions that have numbers.
MOST_BYTES, MOST_NUMBERS = 128 << 20, 1 << 14
# Smaller results are not kept. Larger contents do not stand for themselves.
LEAST_BYTES = 1 << 16
# Longer contents are compared by a digest.
MOST_COMPARED = 1 << 10

# Arguments that stand for themselves: a number of one type never equals one of these of another type.
THEMSELVES = frozenset((int, str, type(None), type(...)))


class Unnumbered(Exception):
    """An expression has a part that may be something else the next time."""


def bytes_of(storage):
    found = ctypes.string_at(storage.data_ptr(), storage.nbytes())
    return found if len(found) <= MOST_COMPARED else hashlib.blake2b(found).digest()


def argument(value):
    """Returns what is equal for equal arguments only."""
    kind = type(value)
    if kind in THEMSELVES:
        return value
    if kind is float or kind is bool:
        return kind, repr(value)
    if kind is tuple or kind is list:
        return kind, *map(argument, value)
    if kind is slice:
        return kind, argument(value.start), argument(value.stop), argument(value.step)
    if kind is dict:
        return kind, *((key, argument(one)) for key, one in value.items())
    raise Unnumbered


class Stored:
    """Results by the numbers of their expressions. One is kept when it is computed for the second time, since most data differ from step to
    step."""

    def __init__(self, torch, place):
        self.torch, self.place = torch, place
        # No number is given twice.
        self.next = itertools.count()
        self.clear()

    def clear(self):
        self.numbers: dict = {}
        # What was computed once, and what is kept: the result and its bytes, the one that was asked for last at the end.
        self.once: set = set()
        self.kept: collections.OrderedDict = collections.OrderedDict()
        self.bytes = 0

    def number(self, work):
        """Returns the number of an operator that was put off, with all that it is computed from; None if it has none."""
        if work.number is None:
            try:
                key = self.described(work)
            except Unnumbered:
                work.number = -1
            else:
                if len(self.numbers) >= MOST_NUMBERS:
                    self.clear()
                work.number = self.numbers.setdefault(key, next(self.next))
        return work.number if work.number >= 0 else None

    def described(self, work):
        function = work.function
        module = getattr(function, "__module__", None)
        # A function of the script may be another one under its name.
        if type(function) is types.FunctionType and not (module or "").startswith("torch."):
            raise Unnumbered
        made = tuple((place.dtype, place.shape, place.strides, place.offset, place.bytes) for place in work.made)
        base = self.contents(work.base) if work.base is not None else None
        kwargs = tuple((key, self.argument(one)) for key, one in work.kwargs.items()) if work.kwargs else ()
        return module, getattr(function, "__qualname__", None), work.name, self.argument(work.args), kwargs, made, base

    def argument(self, value):
        kind = type(value)
        if kind is self.place:
            return value.dtype, value.shape, value.strides, value.offset, self.contents(value.twin)
        if kind is tuple or kind is list:
            return kind, *map(self.argument, value)
        if kind is self.torch.Tensor and value.is_contiguous() and not value.requires_grad:
            # A copy of a small tensor of the host.
            return value.dtype, value.shape, value.storage_offset(), bytes_of(value.untyped_storage())
        if kind is self.torch.dtype or kind is self.torch.device or kind is self.torch.memory_format:
            return value
        return argument(value)

    def contents(self, twin):
        """Returns what stands for the contents of a twin."""
        if twin.work is not None:
            number = self.number(twin.work)
            if number is None:
                raise Unnumbered
            return number, next(at for at, place in enumerate(twin.work.made) if place.twin is twin)
        if twin.number is not None:
            return twin.number
        if twin.storage is None or twin.bytes > LEAST_BYTES:
            raise Unnumbered
        return bytes_of(twin.storage)

    def find(self, key):
        """Returns what was kept."""
        found = self.kept.get(key)
        if found is None:
            return None
        self.kept.move_to_end(key)
        return found[0]

    def offer(self, key, result, size):
        """Keeps a result of so many bytes, if it was computed before. Returns whether it did."""
        if key not in self.once or size > MOST_BYTES:
            self.once.add(key)
            return False
        self.once.discard(key)
        self.kept[key] = result, size
        self.bytes += size
        while self.bytes > MOST_BYTES:
            _, (_, freed) = self.kept.popitem(last=False)
            self.bytes -= freed
        return True
