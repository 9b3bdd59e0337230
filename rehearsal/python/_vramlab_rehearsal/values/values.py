"""Small tensors on a card that is not there, computed for real, so that what a script decides by them is decided rightly.

Kernels do nothing. Beside each operator of PyTorch on a card whose operands are small and known, the same operator runs
here on the CPU, after the one on the card, which so allocates what it always does. A tensor's *twin* is that CPU copy;
it belongs to a storage and counts as long as PyTorch's version counter says that nobody wrote to the tensor meanwhile.
What is not known is never guessed silently: reads of it are told with the line of the script (`reads.py`).

It does not change what is allocated. Written for `start.py`, which starts it."""

import ctypes
import types

from . import quick, raising
from .counted import queue_sizes
from .known import AS_NONE_CHOSEN, doubt
from .operators import (
    ARITHMETIC,
    COUNTED,
    DECIDED_BY_TRUE,
    DECIDED_BY_ZERO,
    DIMENSIONS,
    EMPTY,
    FILLING,
    FILLS,
    FOUND,
    INDICES,
    LARGE,
    MAKING,
    MAX_LIST,
    MAX_SHOWN,
    MOVING,
    PUT_OFF,
    SHAPING,
    SHARING,
    SIZED_VIEWS,
    SOUND,
    VIEWS,
)
from .put_off import PutOff
from .reads import READS, SIZED, Reads
from .short import MADE_OF_NUMBERS, SHORT, number_shortly, shortly
from .statistics import written_statistics

# Operators on unknown operands that are more than run.
TOLD = frozenset(("__bool__", "item", "__float__", "copy_", *FILLING, *SOUND))


def is_known_index(index):
    """True if `[]` gives a view for this index, without reading a tensor."""
    if type(index) is slice:
        return type(index.start) in INDICES and type(index.stop) in INDICES and type(index.step) in INDICES
    return type(index) in INDICES


class Values(PutOff):
    def __init__(self, torch, library):
        super().__init__(torch, library)
        self.reads = Reads(torch)
        self.doing = self.reads.doing
        self.modes = torch._C._len_torch_dispatch_stack
        self.transforms = torch._C._functorch.peek_interpreter_stack
        # Set by `install`: what the library calls at a read, and the mode in which operators arrive here.
        self.callback = self.mode = None
        # Called with a tensor of the host and the result of `to` or `cuda` on it.
        self.moved = None
        # Called with the name of each operator before it runs, and with its result.
        self.begins = self.made = None
        # Types of values that contain no tensors.
        self.scalars = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device, torch.memory_format, torch.layout, type(...)))

    def tensors(self, values, found):
        for value in values:
            kind = type(value)
            if kind in self.plain_types:
                found.append(value)
            elif kind in self.scalars:
                continue
            elif isinstance(value, self.torch.Tensor):
                found.append(value)
            elif isinstance(value, (list, tuple)) and len(value) <= MAX_LIST:
                self.tensors(value, found)
            elif kind is slice:
                self.tensors((value.start, value.stop, value.step), found)
        return found

    def twins_of(self, twins):
        """Returns a function for `replaced` that gives tensors on the card their twins."""
        return lambda tensor: self.view(tensor, twins[id(tensor)]) if id(tensor) in twins else tensor.detach()

    def on_host(self, function, name, args, kwargs, made):
        """Runs an operator on arguments in their form for the CPU; `made` is the number of its results on the card."""
        if name == "copy_":
            return args[0].copy_(args[1])
        if name in ("to", "cuda", "contiguous", "clone") and made == 1:
            return args[0]
        kwargs.pop("pin_memory", None)
        result = quick.result(self.torch, name, args, kwargs)
        return function(*args, **kwargs) if result is None else result

    def random_offset(self, name=""):
        """Returns the number of random numbers that the cards have drawn; None if it is not known. This operator may draw some."""
        cuda = self.torch.cuda
        if not cuda.is_initialized():
            return 0
        if cuda.is_current_stream_capturing():
            return None
        # These draw none.
        if name in PUT_OFF:
            return 0
        return sum(generator.get_offset() for generator in cuda.default_generators)

    def call(self, function, name, args, kwargs):
        if self.begins is None or self.doing.now.busy:
            return self.run(function, name, args, kwargs)
        self.begins(name)
        out = self.run(function, name, args, kwargs)
        if self.made is None:
            return out
        with self.torch._C.DisableTorchFunction():
            self.made(out)
        return out

    def run(self, function, name, args, kwargs):
        if name in VIEWS and not (name in SIZED_VIEWS and self.has_sizes(args)):
            return function(*args, **kwargs)
        if name == "__getitem__" and args[0].is_cuda and (is_known_index(args[1]) if type(args[1]) is not tuple else all(map(is_known_index, args[1]))):
            return function(*args, **kwargs)
        doing = self.doing.now
        # Inside transforms (`vmap`, `grad`) tensors stand for others. Modes would see what is computed here.
        if doing.busy or self.transforms() is not None or self.modes():
            return function(*args, **kwargs)
        # In torch 2.15 whole functions arrive here; so do the operators that they call (`ranks.py`).
        if type(function) is types.FunctionType and function.__module__ == "torch.distributed.distributed_c10d":
            return function(*args, **kwargs)
        if self.writes.value != self.seen_writes:
            self.forget_written()
        taken, plain, scalars = [], self.plain_types, self.scalars
        for value in args:
            kind = type(value)
            if kind in plain:
                taken.append(value)
            elif kind not in scalars:
                self.tensors((value,), taken)
        if kwargs:
            self.tensors(kwargs.values(), taken)
        doing.busy, doing.operator = True, name
        try:
            # `held`: tensors on the card whose storage has a twin, if only an old one.
            on_card, hosts, held, twins, keys, are_known = [], [], [], {}, [], True
            strided, of = self.torch.strided, self.twins
            most = 1 << 62 if self.large else LARGE
            for tensor in taken:
                if not tensor.is_cuda:
                    hosts.append(tensor)
                    continue
                if type(tensor) not in plain:
                    return function(*args, **kwargs)
                on_card.append(tensor)
                twin = None
                if of and tensor.layout is strided and tensor.numel() <= most:
                    storage = tensor.untyped_storage()
                    twin = of.get(storage._cdata)
                if twin is not None:
                    held.append(tensor)
                    keys.append(storage._cdata)
                    twin = self.current(tensor, twin, storage)
                if twin is None:
                    are_known = False
                else:
                    twins[id(tensor)] = twin
            if are_known or held or hosts or name in TOLD:
                return self.answered(function, name, args, kwargs, on_card, hosts, held, twins, keys, are_known)
            out = function(*args, **kwargs)
            if self.writes.value != self.seen_writes:
                self.forget_written()
            return out
        finally:
            if doing.told:
                self.library.vramlab_rehearsal_withdraw()
                doing.told, doing.offered = False, ()
            doing.busy, doing.operator, doing.quiet = False, "", False

    def answered(self, function, name, args, kwargs, on_card, hosts, held, twins, keys, are_known):
        """Runs an operator that may say something about contents."""
        if self.reads.carried and hosts:
            copy = self.reads.on_host(name, hosts, args)
            if copy:
                return self.passed(function, name, args, kwargs, copy)
        if not are_known:
            return self.unknown(function, name, args, kwargs, on_card, held, twins)
        if hosts and not on_card and not kwargs and name not in MOVING:
            out = function(*args, **kwargs)
            if self.reads.carried:
                self.reused(name, self.tensors((out,), []), hosts)
            return out
        if not (on_card or hosts) and name in MADE_OF_NUMBERS:
            return number_shortly(self, function, name, args, kwargs)
        # Of other operators a second tensor may be a size, which is read.
        if name in SHORT and not hosts and (len(on_card) == 1 or (on_card and name in ARITHMETIC)):
            return shortly(self, function, name, args, kwargs, on_card, twins, keys)
        out = self.known(function, name, args, kwargs, on_card, hosts, twins)
        if self.moved and hosts and name in ("to", "cuda"):
            self.moved(hosts[0], out)
        return out

    def has_sizes(self, args):
        """True if a size among the arguments of a view is a tensor, whose number PyTorch reads."""
        sizes = args[1] if len(args) == 2 and type(args[1]) in (tuple, list) else args[1:]
        return any(type(size) in self.plain_types for size in sizes)

    def passed(self, function, name, args, kwargs, copy):
        """Runs an operator on a copy of unknown contents: its results are not known either, on the host or on a card."""
        out = function(*args, **kwargs)
        for tensor in self.tensors((out,), []):
            if tensor.is_cuda:
                self.forget(tensor)
            elif tensor.layout is self.torch.strided and tensor.data_ptr() not in self.reads.carried:
                self.reads.carry(tensor.data_ptr(), tensor.numel() * tensor.element_size(), copy[1], copy[2])
        return out

    def reused(self, name, made, hosts):
        """Forgets copies of unknown contents whose memory an operator of the host got for its results: they are gone."""
        if name in SHARING:
            return
        taken = {storage._cdata for storage in map(self.storage, hosts) if storage is not None}
        for storage in map(self.storage, made):
            if storage is not None and storage._cdata not in taken:
                self.reads.overwritten(storage.data_ptr(), storage.nbytes())

    def unknown(self, function, name, args, kwargs, on_card, held, twins):
        """Runs an operator whose operands are not all known."""
        if name == "__bool__":
            return raising.branch(self, function, args)
        if name in ("item", "__float__") and not twins:
            return raising.number(self, function, name, args)
        shown, decided = (), None
        if twins:
            shown = [t for t in on_card if id(t) in twins and twins[id(t)].bytes <= MAX_SHOWN and not twins[id(t)].doubtful]
            self.tell_doubt(name, twins)
            queue_sizes(self, function, name, args, kwargs, twins)
            decided = self.decided(name, args, twins)
        versions = [self.version(tensor) for tensor in held] if held else held
        out = self.with_shown(function, args, kwargs, shown, twins) if shown else function(*args, **kwargs)
        # Forgets at once, not only later by the version counter: `x.data` has a counter of its own, but shares the
        # storage.
        if held:
            unchanged = self.left_by_a_mask(name, args, twins)
            for tensor in (*self.changed(name, args, kwargs, held, versions), *written_statistics(function, name, args, kwargs)):
                if unchanged is None or tensor is not unchanged:
                    self.forget(tensor)
            if unchanged is not None:
                self.own([unchanged], twins)
                twins[id(unchanged)].doubtful = AS_NONE_CHOSEN
                self.keep(unchanged, twins[id(unchanged)])
        if self.writes.value != self.seen_writes:
            self.forget_written()
        if name == "copy_" and len(args) > 1 and isinstance(args[1], self.torch.Tensor):
            self.keep_large(args[1], out)
        is_told = decided is not None or name in FILLING or name in SOUND
        is_tensor = is_told and type(out) in self.plain_types and out.is_cuda
        if is_tensor and self.is_small(out) and self.covers(out) and self.has_room(out) and self.random_offset() is not None:
            if decided is not None:
                self.fill(out, decided)
            else:
                self.fill_result(name, args, kwargs, out)
        return out

    def left_by_a_mask(self, name, args, twins):
        """Returns known whole numbers, one for each text, that are written where a mask is true which is not known: it chooses none on this card.
        So the end of a generated text, `ends[is_end.any(dim=1)] = …`, stays at its last token."""
        if name != "__setitem__" or len(args) < 2 or not isinstance(args[1], self.torch.Tensor):
            return None
        target, mask = args[:2]
        is_unknown = mask.is_cuda and mask.dtype is self.torch.bool and id(mask) not in twins
        is_meant = is_unknown and id(target) in twins and len(mask.shape) == 1 and target.shape == mask.shape
        return target if is_meant and target.dtype is self.torch.int64 and self.is_small(target) else None

    def decided(self, name, args, twins):
        """Returns the value of every element of a result, if one operand decides it for all values of the unknown one."""
        if not twins or not (name in DECIDED_BY_TRUE or name in DECIDED_BY_ZERO):
            return None
        with self.one_thread, self.torch._C.DisableTorchFunction():
            for tensor in args:
                twin = twins.get(id(tensor))
                if twin is None or twin.doubtful or tensor.numel() == 0 or not self.is_ready(twin):
                    continue
                contents = self.view(tensor, twin)
                if name in DECIDED_BY_TRUE and tensor.dtype is self.torch.bool and bool(contents.all()):
                    # `|` of integers would set other bits too.
                    return True if all(other.dtype is self.torch.bool for other in self.tensors(args, [])) else None
                if name in DECIDED_BY_ZERO and not bool(contents.any()):
                    return 0
        return None

    def fill_result(self, name, args, kwargs, out):
        """Makes results known that do not depend on the operand's contents."""
        if name in FILLS:
            self.fill(out, FILLS[name])
        elif name in ("fill_", "full_like", "new_full"):
            value = kwargs.get("value", kwargs.get("fill_value", args[-1] if len(args) > 1 else None))
            if isinstance(value, (bool, int, float)):
                self.fill(out, value)
        elif name in ("copy_", "new_tensor") and len(args) > 1 and not any(t.is_cuda for t in self.tensors(args[1:], [])):
            try:
                with self.one_thread, self.torch._C.DisableTorchFunction(), self.torch.no_grad():
                    self.register(out).copy_(self.torch.as_tensor(args[1], device=self.cpu))
            except Exception:
                self.forget(out)
        elif name in SOUND:
            self.fill(out, SOUND[name])
            self.reads.tell("assumed", name, "values", answer=str(SOUND[name]))

    def is_collective(self, function):
        """True if an operator receives from other processes: it must not run twice."""
        name = getattr(function, "namespace", None) or getattr(function, "_qualified_op_name", "")
        module = getattr(function, "__module__", None) or ""
        return "c10d" in name or name.split("::")[0] in ("symm_mem", "fsdp", "_dtensor") or module.startswith("torch.distributed")

    def changed(self, name, args, kwargs, tensors, versions):
        """Returns the tensors that an operator changed in place, found by their versions before it."""
        changed = [tensor for tensor, version in zip(tensors, versions) if self.version(tensor) != version]
        return changed + self.changed_uncounted(name, args, kwargs) if -1 in versions else changed

    def changed_uncounted(self, name, args, kwargs):
        """Returns the tensors that an operator changes in place and that have no version counter: those of inference mode."""
        is_in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith(("__i", "_foreach", "_fused", "_amp"))
        if not (is_in_place or name == "__setitem__" or "out" in kwargs):
            return []
        changed = self.tensors([*args[:1], kwargs.get("out")], [])
        return [tensor for tensor in changed if tensor.is_cuda and self.version(tensor) == -1]

    def fill(self, tensor, value):
        with self.one_thread, self.torch.no_grad():
            self.register(tensor).fill_(value)

    def with_shown(self, function, args, kwargs, shown, twins):
        if not shown:
            return function(*args, **kwargs)
        doing = self.doing.now
        for tensor in shown:
            twin = twins[id(tensor)]
            if twin.storage is not None:
                self.library.vramlab_rehearsal_show(twin.address, twin.storage.data_ptr(), twin.bytes)
            else:
                doing.offered = (*doing.offered, twin)
        doing.told = True
        return function(*args, **kwargs)

    def is_plain(self, name, args, kwargs, on_card, hosts):
        """True if an operator reads no contents on the card and draws no random numbers."""
        if not kwargs.keys() <= DIMENSIONS:
            return False
        if name == "__getitem__":
            return all(map(is_known_index, args[1] if type(args[1]) is tuple else args[1:]))
        return name in ARITHMETIC or (name in SHAPING and len(on_card) == 1 and not hosts)

    def known(self, function, name, args, kwargs, on_card, hosts, twins):
        """Runs an operator whose operands are all known, or that has none."""
        is_plain = self.is_plain(name, args, kwargs, on_card, hosts)
        is_small = all(map(self.is_small, on_card)) and (not hosts or all(map(self.may_be_computed, hosts))) and kwargs.get("generator") is None
        versions = [self.version(tensor) for tensor in on_card]
        if is_plain:
            out = function(*args, **kwargs)
            if type(out) in self.plain_types and self.is_view(out, on_card, versions):
                return out
            before = None
        else:
            is_read = name in READS or name in ("to", "copy_")
            # An operator on a list, with numbers besides, reads nothing: an optimizer counts the steps of each parameter so.
            is_listed = name.startswith("_foreach_") and not any(isinstance(one, self.torch.Tensor) for one in args)
            shown = [] if is_listed else [tensor for tensor in on_card if is_read or twins[id(tensor)].bytes <= MAX_SHOWN]
            before = self.random_offset(name) if is_small else None
            self.doing.now.missed = 0
            self.tell_doubt(name, twins)
            if on_card and is_small:
                queue_sizes(self, function, name, args, kwargs, twins)
                # If the result can be computed, it does not matter what the operator's parts read on the card.
                self.doing.now.quiet = True
            out = self.with_shown(function, args, kwargs, shown, twins)
            self.doing.now.quiet = False
        return self.computed_from(function, name, args, kwargs, on_card, hosts, twins, versions, out, is_plain, is_small, before)

    def computed_from(self, function, name, args, kwargs, on_card, hosts, twins, versions, out, is_plain=True, is_small=True, before=None):
        """Computes the result of an operator that has run on the card, if that can be done."""
        made = self.tensors((out,), [])
        # A call without any tensor on the card cannot matter.
        if not on_card and not any(tensor.is_cuda for tensor in made):
            if self.reads.carried:
                self.reused(name, made, hosts)
            return out
        changed = self.changed(name, args, kwargs, on_card, versions)
        if self.writes.value != self.seen_writes:
            self.forget_written()
        # What an operator has changed, and returns, is not new.
        is_new = made and not (len(made) == len(changed) == 1 and made[0] is changed[0])
        fresh = self.fresh(made, on_card) if is_new else []
        if name in FOUND and len(args) == 1 and fresh and all(self.find(tensor) for tensor in fresh):
            return out
        # What the script's own tensor of the host stands for must not be written.
        is_small = is_small and not any(twins[id(tensor)].source is not None for tensor in changed) and all(map(self.has_room, fresh))
        is_computed = is_small and (is_plain or (name not in EMPTY and not self.is_collective(function) and before is not None and before == self.random_offset(name)))
        if is_computed and name not in READS and not (fresh or changed) and all(tensor.is_cuda for tensor in made):
            # The result is nothing, or a view of known contents.
            is_computed = False
        if not is_computed:
            for tensor in changed:
                self.forget(tensor)
            self.tell_missed(name)
            if len(hosts) == 1 and ((name in ("to", "cuda") and not on_card) or name == "copy_"):
                self.keep_large(hosts[0], out)
            return out
        if on_card and self.put_off(function, name, args, kwargs, on_card, hosts, twins, made, fresh, changed, doubt(twins)):
            return out
        return self.compute(function, name, args, kwargs, on_card, twins, out, made, fresh, changed)

    def fresh(self, made, on_card):
        """Returns the results on the card that lie in no operand's storage."""
        inputs = {self.storage(tensor)._cdata for tensor in on_card}
        found = []
        for tensor in made:
            storage = self.storage(tensor) if tensor.is_cuda else None
            if storage is not None and storage._cdata not in inputs:
                found.append(tensor)
        return found

    def is_view(self, out, on_card, versions):
        """True if a result is a view of an operand, and nothing was written."""
        storage = self.storage(out)
        if storage is None or [self.version(tensor) for tensor in on_card] != versions or -1 in versions:
            return False
        return any(storage._cdata == self.storage(tensor)._cdata for tensor in on_card)

    def compute(self, function, name, args, kwargs, on_card, twins, out, made, fresh, changed):
        """Runs an operator once more on the twins. Its results become the contents of the card's results."""
        torch = self.torch
        doubtful = doubt(twins)
        try:
            with self.one_thread, torch._C.DisableTorchFunction(), torch.no_grad():
                self.own(changed, twins)
                tensor_of = self.twins_of(twins)
                cpu_args, cpu_kwargs = self.replaced(args, tensor_of), self.replaced(kwargs, tensor_of) if kwargs else {}
                if not on_card and ("device" in kwargs or not self.tensors(args, [])):
                    cpu_kwargs["device"] = self.cpu
                result = self.on_host(function, name, cpu_args, cpu_kwargs, len(made))
                if name in READS and not made:
                    # A returned array must not be the twin itself.
                    return result.copy() if name in ("numpy", "__array__") else result
                results = self.tensors((result,), [])
                for tensor in changed:
                    self.keep(tensor, twins[id(tensor)])
                    twins[id(tensor)].doubtful = doubtful
                self.computed += 1
                if len(results) != len(made):
                    return out
                # No other tensor holds the result of arithmetic.
                is_own = not changed and (name in ARITHMETIC or name in MAKING)
                for tensor, true in zip(made, results):
                    if tensor.shape != true.shape:
                        self.reads.tell("wrong_size", name, "size", answer=str(tuple(tensor.shape)), true=str(tuple(true.shape)))
                    elif not tensor.is_cuda:
                        if name not in READS:
                            self.tell_doubt("cpu", twins)
                        if tensor.data_ptr() != true.data_ptr():
                            tensor.detach().copy_(true)
                    elif any(tensor is other for other in fresh) and self.is_small(tensor):
                        if is_own and len(made) == 1 and self.is_whole(tensor, true):
                            self.register(tensor, true).doubtful = doubtful
                            continue
                        # Several results may lie in one storage.
                        twin = self.find(tensor)
                        (self.view(tensor, twin) if twin else self.register(tensor)).copy_(true)
                        self.find(tensor).doubtful = doubtful
        except Exception:  # The CPU may lack the operator, or refuse what the card takes: then nothing is known.
            for tensor in [*changed, *fresh]:
                self.forget(tensor)
            self.tell_missed(name)
        return out

    def on_read(self, address, to, size):
        """Called at a read that the library cannot answer, and returns 1 if it is answered here."""
        for twin in self.doing.now.offered:
            if twin.address <= address and address + size <= twin.address + twin.bytes and self.is_ready(twin):
                ctypes.memmove(to, twin.storage.data_ptr() + address - twin.address, size)
                return 1
        self.reads.on_read(address, to, size)
        return 0

    def report(self):
        """Returns the reads of unknown contents, the assumptions, and the numbers of computed operators and of reads."""
        counters = (ctypes.c_uint64 * 3)()
        self.library.vramlab_rehearsal_counters(counters)
        return {
            "computed": self.computed,
            "reads": {"known": counters[1], "unknown": counters[2]},
            "places": list(self.reads.places.values()),
            "beyond": self.reads.beyond,
        }

    def tell_doubt(self, name, twins):
        """Reports decisions that rest on doubtful contents."""
        is_told = name in READS or name in COUNTED or name == "nonzero"
        if is_told and doubt(twins):
            self.reads.tell("assumed", name, "values", answer=doubt(twins))

    def tell_missed(self, name):
        """Reports the reads of an operator that was expected to be computed and was not."""
        missed = self.doing.now.missed
        if missed:
            self.reads.tell("unknown_read", name, "size" if name in SIZED else "inside", bytes=missed, answer="zeros")

    def keep(self, tensor, twin):
        """Keeps a twin that was changed together with its tensor."""
        twin.version, twin.number = self.version(tensor), None
        self.twins[tensor.untyped_storage()._cdata] = twin
