"""The short way of operators on small contents that are all known, with numbers besides: most of what a detector computes on a card.

It does what `known` in `values.py` does with them, of which each question has one answer here. Any other operator is left to that."""

from . import put_off
from .known import doubt
from .operators import ALWAYS_KEPT, ARITHMETIC, DIMENSIONS, MAKING, MAX_ELEMENTS, MAX_KEPT, PLAIN_NUMBERS

# Operators that write their first operand, those whose result is a copy of it, and all that may go the short way.
IN_PLACE = frozenset("add_ __iadd__ sub_ __isub__ mul_ __imul__ div_ __itruediv__ clamp_".split())
COPYING = frozenset("clone contiguous to".split())
SHORT = ARITHMETIC | IN_PLACE | COPYING | frozenset("reshape flatten detach sum max min any all cumsum argmax argmin clamp float long int zeros_like ones_like".split())
# Of these, the operators whose result no other tensor holds.
OWN = ARITHMETIC | MAKING | {"clamp", "tensor"}
# Names of numbers besides.
LIMITS = frozenset(("min", "max"))
# Operators that make a tensor of numbers alone.
MADE_OF_NUMBERS = frozenset("zeros ones full arange tensor".split())


def has_plain_arguments(values, name, args, kwargs):
    """True if an operator of `SHORT` is given no more than tensors, numbers, and one list of tensors."""
    plain = values.plain_types
    if name == "to":
        return len(args) == 2 and not kwargs and args[1] in values.kinds and not is_captured(values)
    for value in args:
        kind = type(value)
        if kind in plain or kind in PLAIN_NUMBERS:
            continue
        if not (kind is list or kind is tuple) or not all(type(one) in plain for one in value):
            return False
    if not kwargs:
        return True
    names = LIMITS if name == "clamp" else DIMENSIONS
    return kwargs.keys() <= names and all(type(value) in PLAIN_NUMBERS for value in kwargs.values()) and (name != "clamp" or not is_captured(values))


def is_captured(values):
    """True if a CUDA graph is recorded, whose operators are not computed."""
    cuda = values.torch.cuda
    return cuda.is_initialized() and cuda.is_current_stream_capturing()


def shortly(values, function, name, args, kwargs, on_card, twins, keys):
    """Runs an operator of `SHORT` whose operands are all known. `keys` are the numbers of their storages."""
    # Whether the operator waits for others that were put off, and whether it is computed quickly otherwise.
    waits, is_quick, most = False, True, put_off.LARGE_RESULT
    for tensor in on_card:
        twin = twins[id(tensor)]
        size = tensor.numel()
        # Tensors of inference mode have no version.
        if twin.source is not None or twin.version == -1 or size > MAX_ELEMENTS or tensor.dtype not in values.kinds or tensor.is_nested:
            return values.known(function, name, args, kwargs, on_card, [], twins)
        if twin.work is not None:
            waits = True
        elif twin.storage is None or size >= most:
            is_quick = False
    if not has_plain_arguments(values, name, args, kwargs):
        return values.known(function, name, args, kwargs, on_card, [], twins)
    versions = [twins[id(tensor)].version for tensor in on_card]
    out = function(*args, **kwargs)
    if type(out) in values.plain_types and out.is_cuda:
        storage = out.untyped_storage()
        is_written = name in IN_PLACE and out is args[0]
        if not is_written and storage._cdata in keys:
            return out
        if values.writes.value != values.seen_writes:
            values.forget_written()
        if waits or out.numel() >= most:
            fits = is_written or storage.nbytes() <= MAX_KEPT - values.kept
            fresh, changed = ((), (out,)) if is_written else ((out,), ())
            if fits and values.put_off(function, name, args, kwargs, on_card, (), twins, (out,), fresh, changed, doubt(twins)):
                return out
        elif is_quick and is_written and not twins[id(out)].shared:
            return written_shortly(values, function, name, args, out, twins)
        elif is_quick and not is_written and is_little(values, out, storage):
            return made_shortly(values, function, name, args, kwargs, out, twins)
    return values.computed_from(function, name, args, kwargs, on_card, [], twins, versions, out)


def is_little(values, out, storage):
    """True if a result is not put off, and has room."""
    return storage.nbytes() <= ALWAYS_KEPT and out.numel() < put_off.LARGE_RESULT and out.dtype in values.kinds


def number_shortly(values, function, name, args, kwargs):
    """Runs an operator of `MADE_OF_NUMBERS` that is given no tensor."""
    if values.reads.carried or "requires_grad" in kwargs or is_captured(values):
        return values.known(function, name, args, kwargs, [], [], {})
    out = function(*args, **kwargs)
    if not out.is_cuda:
        return out
    if type(out) in values.plain_types and out.layout is values.torch.strided and is_little(values, out, out.untyped_storage()) and values.version(out) != -1:
        given = {key: value for key, value in kwargs.items() if key != "pin_memory"}
        given["device"] = values.cpu
        if values.writes.value != values.seen_writes:
            values.forget_written()
        return made_shortly(values, function, name, args, given, out, {})
    return values.computed_from(function, name, args, kwargs, [], [], {}, [], out, is_plain=False, before=0)


def on_host(values, args, twins):
    """Returns the arguments of `has_plain_arguments` in their form for the host."""
    plain, found = values.plain_types, []
    for value in args:
        kind = type(value)
        if kind in plain:
            found.append(values.view(value, twins[id(value)]))
        elif kind is list or kind is tuple:
            found.append([values.view(one, twins[id(one)]) for one in value])
        else:
            found.append(value)
    return found


def made_shortly(values, function, name, args, kwargs, out, twins):
    """Computes a new result."""
    try:
        with values.torch._C.DisableTorchFunction():
            given = on_host(values, args, twins) if twins else args
            true = given[0] if name in COPYING else function(*given, **kwargs)
            values.computed += 1
            if out.shape != true.shape:
                values.reads.tell("wrong_size", name, "size", answer=str(tuple(out.shape)), true=str(tuple(true.shape)))
                return out
            if name in OWN and values.is_whole(out, true):
                twin = values.register(out, true)
            else:
                values.register(out).copy_(true)
                twin = values.twins[out.untyped_storage()._cdata]
        twin.doubtful = doubt(twins)
    except Exception:  # As in `compute`.
        values.forget(out)
        values.tell_missed(name)
    return out


def written_shortly(values, function, name, args, out, twins):
    """Writes the first operand."""
    doubtful = doubt(twins)
    try:
        with values.torch._C.DisableTorchFunction():
            function(*on_host(values, args, twins))
            twin = twins[id(out)]
            values.keep(out, twin)
            twin.doubtful = doubtful
        values.computed += 1
    except Exception:  # As in `compute`.
        values.forget(out)
        values.tell_missed(name)
    return out
