"""Small tensors on a card that is not there, computed for real, so that what a script decides by them is decided rightly.

Kernels do nothing. Beside each operator of PyTorch on a card whose operands are small and known, the same operator runs
here on the CPU, after the one on the card, which so allocates what it always does. A tensor's *twin* is that CPU copy;
it belongs to a storage and counts as long as PyTorch's version counter says that nobody wrote to the tensor meanwhile.
What is not known is never guessed silently: reads of it are told with the line of the script (`reads.py`).

It does not change what is allocated. Written for `start.py`, which starts it."""

import ctypes

# Why contents are doubtful.
AS_BEFORE = "as before a graph or another package's kernel ran"
AS_THIS_RANK = "as if ranks that were not started sent what this one sends"


class Twin:
    """The contents of one storage, and why they are doubtful, if they are. A promise stands for what other ranks have yet
    to send."""

    __slots__ = ("weak", "storage", "version", "address", "bytes", "doubtful", "promise")

    def touches(self, ranges):
        start, end = self.address, self.address + self.bytes
        return any(first < end and start < last for first, last in ranges)


def doubt(twins):
    """Why contents are doubtful, if any are."""
    return next((twin.doubtful for twin in twins.values() if twin.doubtful), "")


class Values:
    def __init__(self, torch, library):
        self.torch, self.library = torch, library
        self.twins = {}
        self.reads = Reads(torch)
        self.doing = self.reads.doing
        self.seen_writes = 0
        self.modes = torch._C._len_torch_dispatch_stack
        self.transforms = torch._C._functorch.peek_interpreter_stack
        self.computed = 0
        self.sweep_at = 256
        self.cpu = torch.device("cpu")
        self.plain_types = frozenset((torch.Tensor, torch.nn.Parameter))
        # What has no tensors in it.
        self.scalars = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device, torch.memory_format, torch.layout, type(...)))
        self.whole = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
        self.other = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
        self.writes = ctypes.c_uint64.in_dll(library, "vramlab_rehearsal_writes")
        self.room = (ctypes.c_uint64 * 8192)()
        self.weak_storage = torch.multiprocessing.reductions.StorageWeakRef

    # --- What is known -------------------------------------------------------------------------------------------

    def is_small(self, tensor):
        kind = tensor.dtype
        limit = MAX_WHOLE if kind in self.whole else MAX_OTHER if kind in self.other else -1
        return tensor.layout is self.torch.strided and tensor.numel() <= limit and not tensor.is_nested

    @staticmethod
    def version(tensor):
        try:
            return tensor._version
        except RuntimeError:
            return -1  # Tensors of inference mode count nothing.

    def storage(self, tensor):
        """A tensor's storage; none if it has not one alone, as sparse tensors and those of transforms."""
        if type(tensor) not in self.plain_types or tensor.layout is not self.torch.strided:
            return None
        try:
            return tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None

    def find(self, tensor):
        """The twin of a tensor's storage, if the tensor's contents are known."""
        # An expanded one may have more, and is not computed.
        storage = self.storage(tensor) if self.twins and tensor.numel() <= MAX_WHOLE else None
        twin = self.twins.get(storage._cdata) if storage is not None else None
        if twin is None:
            return None
        is_same = twin.address == storage.data_ptr() and twin.bytes == storage.nbytes()
        if not is_same or twin.version != self.version(tensor) or tensor.is_conj() or tensor.is_neg():
            return None
        if twin.promise:
            promise, twin.promise = twin.promise, 0
            heard = self.library.vramlab_rehearsal_promised(promise, twin.storage.data_ptr(), twin.bytes)
            if not heard:
                self.twins.pop(storage._cdata, None)
                return None
            twin.doubtful = AS_THIS_RANK if heard == 2 else ""
        return twin

    def view(self, tensor, twin):
        """A CPU tensor over a twin, of the same shape and strides as the tensor."""
        made = self.torch.empty(0, dtype=tensor.dtype, device=self.cpu)
        return made.set_(twin.storage, tensor.storage_offset(), tensor.size(), tensor.stride())

    def register(self, tensor):
        """Makes a tensor's storage known; the caller writes the contents into the view that it gets."""
        storage = tensor.untyped_storage()
        twin = Twin()
        twin.weak, twin.version = self.weak_storage(storage), self.version(tensor)
        twin.address, twin.bytes, twin.doubtful, twin.promise = storage.data_ptr(), storage.nbytes(), "", 0
        twin.storage = self.torch.UntypedStorage(twin.bytes, device="cpu")
        view = self.view(tensor, twin)
        self.twins[storage._cdata] = twin
        if len(self.twins) > self.sweep_at:
            self.twins = {key: twin for key, twin in self.twins.items() if not twin.weak.expired()}
            self.sweep_at = 2 * len(self.twins) + 256
        return view

    def forget(self, tensor):
        storage = self.storage(tensor)
        if storage is not None:
            self.twins.pop(storage._cdata, None)

    def covers(self, tensor):
        """Whether a tensor is all of its storage."""
        storage = self.storage(tensor)
        return storage is not None and tensor.numel() * tensor.element_size() == storage.nbytes()

    def forget_written(self):
        """Forgets what copies and collectives wrote, which no version counter tells; after a graph and a kernel of
        another package everything is doubtful."""
        self.seen_writes = self.writes.value
        room, count = self.room, self.library.vramlab_rehearsal_written(self.room, len(self.room) // 2)
        if count < 0:
            for twin in self.twins.values():
                twin.doubtful = AS_BEFORE
            return
        if not count or not self.twins:
            return
        ranges = [(room[2 * at], room[2 * at] + room[2 * at + 1]) for at in range(count)]
        lowest, highest = min(first for first, _ in ranges), max(last for _, last in ranges)
        written = [
            key
            for key, twin in self.twins.items()
            if twin.address < highest and lowest < twin.address + twin.bytes and twin.touches(ranges)
        ]
        for key in written:
            del self.twins[key]

    # --- Operators -------------------------------------------------------------------------------------------------

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

    def replaced(self, value, twins):
        """An argument as it is for the CPU."""
        if isinstance(value, self.torch.Tensor):
            return self.view(value, twins[id(value)]) if id(value) in twins else value.detach()
        if isinstance(value, (list, tuple)):
            made = [self.replaced(item, twins) for item in value]
            return made if isinstance(value, list) else tuple(made)
        if type(value) is dict:
            return {key: self.replaced(item, twins) for key, item in value.items()}
        if type(value) is slice:
            return slice(*(self.replaced(item, twins) for item in (value.start, value.stop, value.step)))
        if isinstance(value, self.torch.device) or (isinstance(value, str) and value.startswith("cuda")):
            return self.cpu
        return value

    def random_offset(self):
        """How many random numbers the cards have drawn; None where this cannot be said."""
        cuda = self.torch.cuda
        if not cuda.is_initialized():
            return 0
        if cuda.is_current_stream_capturing():
            return None
        return sum(generator.get_offset() for generator in cuda.default_generators)

    def call(self, function, args, kwargs):
        name = getattr(function, "__name__", "")
        doing = self.doing
        # Inside transforms (`vmap`, `grad`) tensors stand for others; modes would see what is computed here.
        if name in PLAIN or doing.busy or self.transforms() is not None or self.modes():
            return function(*args, **kwargs)
        # Of torch 2.15, whole functions come here; what they call does, too (`ranks.py`).
        if getattr(function, "__module__", None) == "torch.distributed.distributed_c10d":
            return function(*args, **kwargs)
        if self.writes.value != self.seen_writes:
            self.forget_written()
        taken = self.tensors(args, [])
        if kwargs:
            self.tensors(kwargs.values(), taken)
        doing.busy, doing.operator = True, name
        try:
            on_card, hosts, twins, are_known = [], [], {}, True
            for tensor in taken:
                if not tensor.is_cuda:
                    hosts.append(tensor)
                    continue
                if type(tensor) not in self.plain_types:
                    return function(*args, **kwargs)
                on_card.append(tensor)
                twin = self.find(tensor)
                if twin is None:
                    are_known = False
                else:
                    twins[id(tensor)] = twin
            if not are_known:
                return self.unknown(function, name, args, kwargs, on_card, twins)
            if hosts and not on_card and not kwargs and name not in MOVING:
                return function(*args, **kwargs)
            return self.known(function, name, args, kwargs, on_card, hosts, twins)
        finally:
            if doing.told:
                self.library.vramlab_rehearsal_withdraw()
            doing.busy, doing.operator, doing.quiet, doing.told = False, "", False, False

    def unknown(self, function, name, args, kwargs, on_card, twins):
        """An operator of which not all operands are known."""
        shown = ()
        if twins:
            shown = [t for t in on_card if id(t) in twins and twins[id(t)].bytes <= MAX_SHOWN and not twins[id(t)].doubtful]
            self.tell_doubt(name, twins)
            self.queue_sizes(function, name, args, kwargs, twins)
        if name == "__bool__":
            return branch(self, function, args)
        decided = self.decided(name, args, twins)
        small = [tensor for tensor in on_card if tensor.numel() <= LARGE]
        versions = [self.version(tensor) for tensor in small]
        out = self.with_shown(function, args, kwargs, shown, twins)
        # Not only lazily, by the counter: `x.data` has a counter of its own, but the same storage.
        for tensor in self.changed(name, args, kwargs, small, versions):
            self.forget(tensor)
        if self.writes.value != self.seen_writes:
            self.forget_written()
        is_told = decided is not None or name in FILLING or name in SOUND
        is_tensor = is_told and type(out) in self.plain_types and out.is_cuda
        if is_tensor and self.is_small(out) and self.covers(out) and self.random_offset() is not None:
            if decided is not None:
                self.fill(out, decided)
            else:
                self.fill_result(name, args, kwargs, out)
        return out

    def decided(self, name, args, twins):
        """What every element of a result is whatever the unknown operand holds, if one operand says that."""
        if not twins or not (name in DECIDED_BY_TRUE or name in DECIDED_BY_ZERO):
            return None
        with self.torch._C.DisableTorchFunction():
            for tensor in args:
                twin = twins.get(id(tensor))
                if twin is None or twin.doubtful or tensor.numel() == 0:
                    continue
                contents = self.view(tensor, twin)
                if name in DECIDED_BY_TRUE and tensor.dtype is self.torch.bool and bool(contents.all()):
                    # `|` of whole numbers would add other bits.
                    return True if all(other.dtype is self.torch.bool for other in self.tensors(args, [])) else None
                if name in DECIDED_BY_ZERO and not bool(contents.any()):
                    return 0
        return None

    def fill_result(self, name, args, kwargs, out):
        """Results that do not depend on what the operand holds."""
        if name in FILLS:
            self.fill(out, FILLS[name])
        elif name in ("fill_", "full_like", "new_full"):
            value = kwargs.get("value", kwargs.get("fill_value", args[-1] if len(args) > 1 else None))
            if isinstance(value, (bool, int, float)):
                self.fill(out, value)
        elif name in ("copy_", "new_tensor") and len(args) > 1 and not any(t.is_cuda for t in self.tensors(args[1:], [])):
            try:
                with self.torch._C.DisableTorchFunction(), self.torch.no_grad():
                    self.register(out).copy_(self.torch.as_tensor(args[1], device=self.cpu))
            except Exception:
                self.forget(out)
        elif name in SOUND:
            self.fill(out, SOUND[name])
            self.reads.tell("assumed", name, "values", answer=str(SOUND[name]))

    def is_collective(self, function):
        """Operators that hear from other processes must not run twice."""
        name = getattr(function, "namespace", None) or getattr(function, "_qualified_op_name", "")
        module = getattr(function, "__module__", None) or ""
        return "c10d" in name or name.split("::")[0] in ("symm_mem", "fsdp", "_dtensor") or module.startswith("torch.distributed")

    def changed(self, name, args, kwargs, tensors, versions):
        """The tensors that an operator changed in place, by their versions before it."""
        changed = [tensor for tensor, version in zip(tensors, versions) if self.version(tensor) != version]
        return changed + self.changed_uncounted(name, args, kwargs) if -1 in versions else changed

    def changed_uncounted(self, name, args, kwargs):
        """The tensors that an operator changes in place and that have no version counter: those of inference mode."""
        is_in_place = (name.endswith("_") and not name.endswith("__")) or name.startswith(("__i", "_foreach", "_fused", "_amp"))
        if not (is_in_place or name == "__setitem__" or "out" in kwargs):
            return []
        changed = self.tensors([*args[:1], kwargs.get("out")], [])
        return [tensor for tensor in changed if tensor.is_cuda and self.version(tensor) == -1]

    def fill(self, tensor, value):
        with self.torch.no_grad():
            self.register(tensor).fill_(value)

    def with_shown(self, function, args, kwargs, shown, twins):
        if not shown:
            return function(*args, **kwargs)
        for tensor in shown:
            twin = twins[id(tensor)]
            self.library.vramlab_rehearsal_show(twin.address, twin.storage.data_ptr(), twin.bytes)
        self.doing.told = True
        return function(*args, **kwargs)

    def known(self, function, name, args, kwargs, on_card, hosts, twins):
        """An operator of which all operands are known, or that has none."""
        is_read = name in READS or name in ("to", "copy_")
        is_plain = kwargs.keys() <= DIMENSIONS and (name in ARITHMETIC or name in SHAPING and len(on_card) == 1 and not hosts)
        shown = () if is_plain else [tensor for tensor in on_card if is_read or twins[id(tensor)].bytes <= MAX_SHOWN]
        versions = [self.version(tensor) for tensor in on_card]
        is_small = all(map(self.is_small, on_card)) and all(map(self.is_small, hosts))
        before = self.random_offset() if is_small and not is_plain else None
        is_small = is_small and kwargs.get("generator") is None
        self.doing.missed = 0
        self.tell_doubt(name, twins)
        if on_card and is_small:
            self.queue_sizes(function, name, args, kwargs, twins)
            # If it can be computed, it does not matter what its parts read on the card.
            self.doing.quiet = True
        out = self.with_shown(function, args, kwargs, shown, twins)
        self.doing.quiet = False
        made = self.tensors([out], [])
        # Nothing of this can matter where nothing is on the card.
        if not on_card and not any(tensor.is_cuda for tensor in made):
            return out
        changed = self.changed(name, args, kwargs, on_card, versions)
        if self.writes.value != self.seen_writes:
            self.forget_written()
        inputs = {self.storage(tensor)._cdata for tensor in on_card}
        fresh = [t for t in made if t.is_cuda and self.storage(t) is not None and self.storage(t)._cdata not in inputs]
        if is_plain:
            is_computed = is_small
        else:
            is_computed = is_small and name not in EMPTY and not self.is_collective(function) and before is not None and before == self.random_offset()
        if is_computed and name not in READS and not (fresh or changed) and all(tensor.is_cuda for tensor in made):
            # Nothing, or a view of what is known.
            is_computed = False
        if not is_computed:
            for tensor in changed:
                self.forget(tensor)
            self.tell_missed(name)
            return out
        return self.compute(function, name, args, kwargs, on_card, twins, out, made, fresh, changed)

    def compute(self, function, name, args, kwargs, on_card, twins, out, made, fresh, changed):
        """Runs an operator once more on the twins, and makes what it gives the contents of what the card's gave."""
        torch = self.torch
        doubtful = doubt(twins)
        # Threads of PyTorch's would wait for each other longer than they work.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                if name == "copy_":
                    result = self.view(args[0], twins[id(args[0])]) if args[0].is_cuda else args[0].detach()
                    result.copy_(self.replaced(args[1], twins))
                elif name in ("to", "cuda", "contiguous", "clone") and len(made) == 1:
                    result = self.replaced(args[0], twins)
                else:
                    cpu_args, cpu_kwargs = self.replaced(args, twins), self.replaced(kwargs, twins)
                    if not on_card and "device" in kwargs or not (on_card or self.tensors(args, [])):
                        cpu_kwargs["device"] = self.cpu
                    cpu_kwargs.pop("pin_memory", None)
                    result = function(*cpu_args, **cpu_kwargs)
                if name in READS and not made:
                    # An array must not be the twin itself.
                    return result.copy() if name in ("numpy", "__array__") else result
                results = self.tensors([result], [])
                for tensor in changed:
                    self.keep(tensor, twins[id(tensor)])
                    twins[id(tensor)].doubtful = doubtful
                self.computed += 1
                if len(results) != len(made):
                    return out
                for tensor, true in zip(made, results):
                    if tensor.shape != true.shape:
                        self.reads.tell("wrong_size", name, "size", answer=str(tuple(tensor.shape)), true=str(tuple(true.shape)))
                    elif not tensor.is_cuda:
                        if name not in READS:
                            self.tell_doubt("cpu", twins)
                        if tensor.data_ptr() != true.data_ptr():
                            tensor.detach().copy_(true)
                    elif any(tensor is other for other in fresh) and self.is_small(tensor):
                        # Several results may lie in one storage.
                        twin = self.find(tensor)
                        (self.view(tensor, twin) if twin else self.register(tensor)).copy_(true)
                        self.find(tensor).doubtful = doubtful
        except Exception:  # The CPU may lack the operator, or refuse what the card takes: then nothing is known.
            for tensor in [*changed, *fresh]:
                self.forget(tensor)
            self.tell_missed(name)
        finally:
            torch.set_num_threads(threads)
        return out

    def report(self):
        """What was read that is not known, and what was assumed; numbers of computed operators and of reads."""
        counters = (ctypes.c_uint64 * 3)()
        self.library.vramlab_rehearsal_counters(counters)
        return {
            "computed": self.computed,
            "reads": {"known": counters[1], "unknown": counters[2]},
            "places": list(self.reads.places.values()),
            "beyond": self.reads.beyond,
        }

    def tell_doubt(self, name, twins):
        """Tells of what is decided by contents that are doubtful."""
        is_told = name in READS or name in COUNTED or name == "nonzero"
        if is_told and doubt(twins):
            self.reads.tell("assumed", name, "values", answer=doubt(twins))

    def tell_missed(self, name):
        """Tells of reads of an operator that was expected to be computed and was not."""
        if self.doing.missed:
            self.reads.tell("unknown_read", name, "size" if name in SIZED else "inside", bytes=self.doing.missed, answer="zeros")

    def keep(self, tensor, twin):
        """Keeps a twin that was changed together with its tensor."""
        twin.version = self.version(tensor)
        self.twins[tensor.untyped_storage()._cdata] = twin

    def queue_sizes(self, function, name, args, kwargs, twins):
        """Queues the numbers that an operator reads from the card to know how large its result is."""
        if name not in COUNTED:
            return
        torch = self.torch
        try:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                numbers = [int(number) for number in self.sizes(function, name, args, kwargs, twins)]
        except Exception:  # As in `compute`.
            return
        for number in numbers:
            self.doing.told = True
            self.library.vramlab_rehearsal_queue(number)

    def sizes(self, function, name, args, kwargs, twins):
        known = [self.view(t, twins[id(t)]) for t in self.tensors([args, *kwargs.values()], []) if id(t) in twins]
        is_first_known = bool(args) and id(args[0]) in twins
        if name in ("unique", "_unique2", "unique_consecutive", "unique_dim") and is_first_known:
            result = function(*self.replaced(args, twins), **self.replaced(kwargs, twins))
            result, dim = result[0] if isinstance(result, tuple) else result, kwargs.get("dim")
            return [result.numel() if dim is None else result.shape[dim]]
        if name == "bincount" and is_first_known and known[0].numel():
            return [known[0].min(), known[0].max()]
        if name == "one_hot" and is_first_known and known[0].numel():
            return [known[0].max()]
        if name == "repeat_interleave":
            # How often each is repeated is the last tensor. Then it asks whether none of them is negative.
            repeats = self.tensors([args, *kwargs.values()], [])[-1]
            if id(repeats) in twins and repeats.numel():
                return [known[-1].sum(), bool((known[-1] >= 0).all())]
        return []
