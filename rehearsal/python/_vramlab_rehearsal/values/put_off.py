"""Large contents are computed once somebody reads them: pictures and targets of losses often never are. Written for `values.py`.

An operator that is put off has run on the card. For the host its operands are remembered: contents that are not written any more, since a
later operator that writes a tensor gives it new contents."""

import functools
import weakref

from . import quick, stored, tables
from .known import Known, Twin
from .operators import MAX_ELEMENTS, PLAIN_NUMBERS, PUT_OFF, PUT_OFF_IN_PLACE

# Results with fewer elements are computed at once, unless an operand is put off.
LARGE_RESULT = 1 << 15
# Tensors of the host with more elements are not remembered as operands.
MAX_HOST = 1 << 12
# Longest chain of operators that are put off, and most bytes of contents that all of them hold.
MAX_DEPTH, MAX_HELD = 40, 256 << 20

# Arguments that nobody changes, or that are copied.
KEPT = frozenset((int, float, bool, type(None), type(...), slice, list, tuple))


class Place:
    """A tensor on the card as an operand: the contents of its storage, and where the tensor lies in them. It holds no memory of the card."""

    __slots__ = ("twin", "dtype", "shape", "strides", "offset")

    def __init__(self, tensor, twin):
        self.twin, self.dtype, self.shape = twin, tensor.dtype, tensor.shape
        self.strides, self.offset = tensor.stride(), tensor.storage_offset()

    def over(self, torch, storage):
        """Returns the tensor of the host over these contents."""
        return torch.empty(0, dtype=self.dtype, device="cpu").set_(storage, self.offset, self.shape, self.strides)


class Made(Place):
    """A tensor as a result of an operator that was put off: `bytes` of contents, which its own twin will have. `twin` is None once nothing
    else holds that. A result that held it would be a cycle, and what nobody reads would stay until Python's garbage collector runs."""

    __slots__ = ("bytes", "to_twin")

    def __init__(self, tensor, twin):
        self.to_twin, self.bytes, self.dtype, self.shape = weakref.ref(twin), twin.bytes, tensor.dtype, tensor.shape
        self.strides, self.offset = tensor.stride(), tensor.storage_offset()

    @property
    def twin(self):
        return self.to_twin()


class Work:
    """An operator that was put off. `made` are the places of its results, of which each has a twin of its own, or that which it writes,
    whose contents before are those of `base`."""

    __slots__ = ("values", "function", "name", "args", "kwargs", "made", "operands", "base", "depth", "held", "number")

    def __init__(self, values, function, name, args, kwargs, operands, base=None):
        self.values, self.function, self.name, self.args, self.kwargs = values, function, name, args, kwargs
        self.base, self.operands, self.made, self.number = base, operands, [], None
        depth = held = 0
        for twin in operands:
            if twin.work is None:
                held += twin.bytes
            elif twin.work.depth > depth:
                depth = twin.work.depth
        self.depth, self.held = 1 + depth, held
        values.held_bytes += held

    def __del__(self):
        self.values.held_bytes -= self.held

    def do(self):
        """Computes the results. Fails where the host lacks the operator, or refuses what the card takes."""
        values, torch, base = self.values, self.values.torch, self.base
        with values.one_thread, torch._C.DisableTorchFunction(), torch.no_grad():
            if self.is_of_tables():
                return
            if base is not None:
                written = self.made[0].twin
                contents = values.finished(base).storage
                written.storage = contents.clone() if base.shared else contents

            def on_host(place):
                if type(place) is not Place:
                    return place
                if base is not None and place.twin is base:
                    return place.over(torch, written.storage)
                return values.placed(place)

            args = values.replaced(self.args, on_host)
            kwargs = values.replaced(self.kwargs, on_host) if self.kwargs else {}
            result = values.on_host(self.function, self.name, args, kwargs, len(self.made))
            if base is not None:
                return
            results = values.tensors((result,), [])
            if len(results) != len(self.made):
                raise ValueError("other results than on the card")
            # No other tensor holds what an operator on the host has made.
            taken = {twin.storage.data_ptr() for twin in self.operands if twin.storage is not None}
            storages = [true.untyped_storage().data_ptr() for true in results]
            for place, true, storage in zip(self.made, results, storages):
                self.keep(torch, place, true, storage not in taken and storages.count(storage) == 1)

    def is_of_tables(self):
        """Computes the results as, or from, a table of which most entries are zero, or a vector of which most are equal (`tables.py`,
        `vectors.py`). Returns whether they are such."""
        first = self.args[0] if self.args else None
        if type(first) is not Place or max(first.twin.bytes, self.made[0].bytes) < tables.LEAST:
            return False
        # What is written may be a part of a tensor, and other contents than the operand's.
        if self.base is not None and (self.name != "__setitem__" or first.twin is not self.base):
            return False
        found = (tables.started(self.values, self) if self.base is None else None) or tables.followed(self.values, self)
        if found is None:
            return False
        for place, true in zip(self.made, found if type(found) is tuple else (found,)):
            if type(true) in (tables.Table, tables.Vector):
                if place.twin is not None:
                    place.twin.table = true
            else:
                self.keep(self.values.torch, place, true, True)
        return True

    def keep(self, torch, place, true, is_own):
        """Makes a result the contents of a twin."""
        if place.shape != true.shape:
            raise ValueError("another size than on the card")
        twin = place.twin
        if twin is None:
            return
        is_whole = true.stride() == place.strides and true.dtype is place.dtype and not (place.offset or true.storage_offset())
        if is_own and is_whole and true.untyped_storage().nbytes() == twin.bytes:
            twin.storage = true.untyped_storage()
            return
        twin.storage = torch.UntypedStorage(twin.bytes, device="cpu")
        place.over(torch, twin.storage).copy_(true)


class PutOff(Known):
    """What `Values` does with operators that are put off."""

    def __init__(self, torch, library):
        super().__init__(torch, library)
        # Number of operators that were computed.
        self.computed = 0
        # Bytes that operators that were put off hold.
        self.held_bytes = 0
        self.stored = stored.Stored(torch, Place)

    def replaced(self, value, tensor_of):
        """Returns an argument in its form for the CPU, with what `tensor_of` makes of its tensors."""
        kind = type(value)
        if kind in PLAIN_NUMBERS:
            return value
        if kind is Place or kind in self.plain_types or isinstance(value, self.torch.Tensor):
            return tensor_of(value)
        if isinstance(value, (list, tuple)):
            made = [self.replaced(item, tensor_of) for item in value]
            return made if isinstance(value, list) else tuple(made)
        if type(value) is dict:
            return {key: self.replaced(item, tensor_of) for key, item in value.items()}
        if type(value) is slice:
            return slice(*(self.replaced(item, tensor_of) for item in (value.start, value.stop, value.step)))
        if isinstance(value, self.torch.device) or (isinstance(value, str) and value.startswith("cuda")):
            return self.cpu
        return value

    def may_wait(self, name, args, taken, hosts):
        """True if the size of an operator's result does not depend on contents, and if its operands can be remembered."""
        if name not in PUT_OFF or any(host.numel() > MAX_HOST for host in hosts):
            return False
        # What is not copied here may change until it is read.
        if name in ("__getitem__", "__setitem__") and not all(type(one) in KEPT or type(one) in self.plain_types for one in (args[1] if type(args[1]) is tuple else args[1:])):
            return False
        if name == "where":
            return len(args) == 3
        # A mask as an index says how many elements there are.
        return name != "__getitem__" or not any(one.dtype in (self.torch.bool, self.torch.uint8) for one in taken[1:])

    def put_off(self, function, name, args, kwargs, on_card, hosts, twins, made, fresh, changed, doubtful):
        """Puts an operator off, and returns whether it did."""
        # Most operators end here: loops take half of what generators would.
        for tensor in changed or made:
            if tensor.numel() >= LARGE_RESULT:
                break
        else:
            for twin in twins.values():
                if twin.work is not None:
                    break
            else:
                return False
        operands = list({id(twin): twin for twin in twins.values()}.values()) if len(twins) > 1 else [*twins.values()]
        for twin in operands:
            if twin.source is not None:
                return False
        if not self.may_wait(name, args, on_card, hosts):
            return False
        if changed:
            written = twins[id(changed[0])]
            fits = name in PUT_OFF_IN_PLACE and changed[0] is args[0] and all(twins[id(one)] is written for one in changed)
            if not fits or "out" in kwargs or self.version(changed[0]) == -1:
                return False
        elif len(fresh) != len(made) or (len(made) > 1 and len({tensor.untyped_storage()._cdata for tensor in made}) != len(made)):
            return False

        def remembered(tensor):
            twin = twins.get(id(tensor))
            return Place(tensor, twin) if twin is not None else tensor.detach().clone()

        given = tuple(value if type(value) in PLAIN_NUMBERS else self.replaced(value, remembered) for value in args)
        work = Work(self, function, name, given, self.replaced(kwargs, remembered) if kwargs else {}, operands, written if changed else None)
        if work.depth > MAX_DEPTH or self.held_bytes > MAX_HELD:
            return False
        for tensor in changed[:1] or made:
            twin = self.waiting(work, tensor, doubtful)
            if not changed:
                self.kept += twin.bytes
        for twin in operands:
            if twin is not work.base:
                twin.shared = True
        if len(self.twins) > self.sweep_at:
            self.sweep()
        return True

    def placed(self, place):
        """Returns the tensor of the host that an operand stands for."""
        return place.over(self.torch, self.finished(place.twin).storage)

    def table(self, place):
        """Returns the contents of a tensor as a table; None if they are none, or the tensor is not all of it."""
        table = self.done(place.twin).table
        is_whole = table is not None and place.shape == table.shape and place.strides == table.strides and not place.offset
        return table if is_whole else None

    def finished(self, twin):
        """Returns a twin, with all its contents. Fails where they cannot be computed."""
        if self.done(twin).table is not None:
            with self.one_thread, self.torch._C.DisableTorchFunction(), self.torch.no_grad():
                twin.storage, twin.table = twin.table.dense().untyped_storage(), None
        return twin

    def done(self, twin):
        """Returns a twin, with its contents or a table of them. Fails where they cannot be computed."""
        work = twin.work
        if work is not None:
            key = self.stored.number(work) if work.made[0].bytes >= stored.LEAST_BYTES else None
            # Of several results some may be gone.
            made = [one for one in (place.twin for place in work.made) if one is not None]
            for one in made:
                one.work = None
            try:
                if key is None or not self.is_stored(key, work.made):
                    work.do()
                    self.store(key, work)
            except Exception:
                for one in made:
                    one.storage = None
                raise
            self.computed += 1
            for operand in work.operands:
                if operand.weak.expired() and self.twins.get(operand.weak.cdata) is operand:
                    del self.twins[operand.weak.cdata]
                    self.kept -= operand.bytes
        if twin.storage is None and twin.table is None:
            raise ValueError("contents were not computed")
        return twin

    def nonzero(self, tensor, twin):
        """Returns the shape of the places of what is not zero, and what keeps them as the contents of a tensor of this shape: of a large
        operand it puts them off. None if contents cannot be computed."""
        try:
            place = Place(tensor, twin)
            table = self.table(place)
            found = table.places() if table is not None else None
            if found is None and tensor.numel() >= LARGE_RESULT and twin.source is None and self.held_bytes <= MAX_HELD:
                is_vector = type(table) is tables.Vector
                count = table.count() if is_vector else int(self.torch.count_nonzero(self.view(tensor, twin)))
                return (count, tensor.dim()), functools.partial(self.put_off_places, place)
            if found is None and tensor.numel() > MAX_ELEMENTS:
                return None
            if found is None:
                found = quick.nonzero(self.torch, self.view(tensor, twin))
        except Exception:  # As in `compute`.
            return None
        return tuple(found.shape), functools.partial(self.keep_places, found)

    def put_off_places(self, place, out, doubtful):
        work = Work(self, functools.partial(quick.nonzero, self.torch), "nonzero", (place,), {}, [place.twin])
        place.twin.shared = True
        twin = self.waiting(work, out, doubtful)
        self.kept += twin.bytes

    def keep_places(self, found, out, doubtful):
        self.register(out).copy_(found)
        self.find(out).doubtful = doubtful

    def waiting(self, work, tensor, doubtful):
        """Returns the twin of a result whose contents are put off."""
        storage = tensor.untyped_storage()
        twin = Twin(self.weak_storage(storage), storage, self.version(tensor), None)
        twin.work, twin.doubtful = work, doubtful
        work.made.append(Made(tensor, twin))
        self.twins[storage._cdata] = twin
        return twin

    def is_stored(self, key, made):
        """Gives results the contents that were kept, if they were."""
        found = self.stored.find(key)
        if found is None:
            return False
        for at, (place, (storage, table)) in enumerate(zip(made, found)):
            twin = place.twin
            if twin is not None:
                twin.storage, twin.table, twin.shared, twin.number = storage, table, True, (key, at)
        return True

    def store(self, key, work):
        """Offers results that were computed to those that are kept. What was written is not: it would be copied before it is written again."""
        if key is None:
            return
        twins = [place.twin for place in work.made]
        if None in twins:
            return
        for at, twin in enumerate(twins):
            twin.number = key, at
        result = [(twin.storage, twin.table) for twin in twins]
        if work.base is None and self.stored.offer(key, result, sum(twin.bytes for twin in twins)):
            for twin in twins:
                twin.shared = True

    def is_ready(self, twin):
        """True if a twin has contents, which are computed now if they were put off."""
        try:
            return self.finished(twin) is twin
        except Exception:  # As in `compute`.
            return False

    def own(self, changed, twins):
        """Gives tensors that are to be written contents of their own, where an operator that was put off remembers these."""
        for tensor in changed:
            twin = twins[id(tensor)]
            if not twin.shared or self.twins.get(tensor.untyped_storage()._cdata) is not twin:
                continue
            storage = tensor.untyped_storage()
            new = Twin(twin.weak, storage, twin.version, None)
            new.storage, new.doubtful = self.finished(twin).storage.clone(), twin.doubtful
            self.twins[storage._cdata] = new
            for key, other in twins.items():
                if other is twin:
                    twins[key] = new
