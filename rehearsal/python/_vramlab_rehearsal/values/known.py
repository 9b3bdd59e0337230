"""Known contents of small tensors on the card: their twins. Written for `values.py`."""

import contextlib
import ctypes
import math

from .operators import ALWAYS_KEPT, LARGE, MAX_ELEMENTS, MAX_KEPT, MAX_LARGE, MAX_REPEATED, SWEEP_EVERY

# A page has this power of two of bytes. Of more pages, every twin is looked at.
PAGE, FEW_PAGES = 21, 32

# Reasons why contents are doubtful.
AS_BEFORE = "as before a graph or another package's kernel ran"
AS_THIS_RANK = "as if ranks that were not started sent what this one sends"
AS_NONE_CHOSEN = "as if a mask of generated tokens chose none"


class Twin:
    """The contents of one storage, and the reason if they are doubtful. A promise stands for contents that other ranks have yet
    to send. `seen` is the CPU tensor over the contents that was asked for last. `source` is the script's own tensor of the host where the
    contents were too large for a copy, with its version. `work` computes contents that were put off, until then there are none; `shared`
    contents are remembered by such work, or kept in `stored.py`. `table` has contents of which most are zero (`tables.py`), until all are
    asked for. `number` says what contents were computed from, until they are written (`stored.py`)."""

    __slots__ = ("weak", "storage", "version", "address", "bytes", "doubtful", "promise", "seen", "source", "work", "shared", "table", "number", "__weakref__")

    def __init__(self, weak, storage, version, seen):
        self.weak, self.version, self.seen = weak, version, seen
        self.address, self.bytes = storage.data_ptr(), storage.nbytes()
        self.doubtful, self.promise, self.source = "", 0, None
        self.storage = self.work = self.table = self.number = None
        self.shared = False

    def touches(self, ranges):
        start, end = self.address, self.address + self.bytes
        return any(first < end and start < last for first, last in ranges)


class Twins(dict):
    """Twins by the numbers of their storages. `pages` has the numbers of those that lie, or lay, in a page of the card's memory."""

    def __init__(self, twins=()):
        super().__init__()
        self.pages: dict = {}
        for key, twin in twins:
            self[key] = twin

    def __setitem__(self, key, twin):
        super().__setitem__(key, twin)
        first, last = twin.address >> PAGE, twin.address + twin.bytes >> PAGE
        for page in (first,) if first == last else range(first, last + 1):
            keys = self.pages.get(page)
            if keys is None:
                keys = self.pages[page] = set()
            keys.add(key)

    def touched(self, ranges):
        """Returns the numbers of those of which a part lies in the ranges."""
        lowest, highest = min(first for first, _ in ranges), max(last for _, last in ranges)
        if lowest >> PAGE == highest >> PAGE:
            near = self.pages.get(lowest >> PAGE, ())
        elif sum((last >> PAGE) - (first >> PAGE) + 1 for first, last in ranges) <= FEW_PAGES:
            near = set().union(*(self.pages.get(page, ()) for first, last in ranges for page in range(first >> PAGE, (last >> PAGE) + 1)))
        else:
            near = self.keys()
        found = []
        for key in near:
            twin = self.get(key)
            if twin and twin.address < highest and lowest < twin.address + twin.bytes and (len(ranges) == 1 or twin.touches(ranges)):
                found.append(key)
        return found


class OneThread:
    """Computes on the host in one thread: PyTorch's threads would wait for each other longer
    than they work. The number of threads belongs to the process, so that the last of several computing threads restores it."""

    def __init__(self, torch):
        self.torch, self.depth, self.before = torch, 0, None

    def __enter__(self):
        if self.depth == 0:
            self.before = self.torch.get_num_threads()
            self.torch.set_num_threads(1)
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1
        if self.depth == 0:
            self.torch.set_num_threads(self.before)

    @contextlib.contextmanager
    def several(self):
        """Computes in as many threads as the process has, inside of the one: large operators on each element, whose results do not depend on
        it."""
        if self.depth != 1 or self.before < 2:
            yield
            return
        self.torch.set_num_threads(self.before)
        try:
            yield
        finally:
            self.torch.set_num_threads(1)


def doubt(twins):
    """Returns why contents are doubtful, if any are."""
    for twin in twins.values():
        if twin.doubtful:
            return twin.doubtful
    return ""


class Known:
    """The twins of all storages whose contents are known."""

    def __init__(self, torch, library):
        self.torch, self.library = torch, library
        self.twins = Twins()
        # Bytes of large contents, which stay in the script's own tensors, by storage.
        self.large = {}
        self.seen_writes = 0
        self.sweep_at = 256
        # Bytes of the twins, and of those that were forgotten since the last sweep.
        self.kept = 0
        # Tensors that found no room since the last sweep that made some.
        self.asked_in_vain = 0
        self.cpu = torch.device("cpu")
        self.plain_types = frozenset((torch.Tensor, torch.nn.Parameter))
        whole = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
        self.kinds = whole | {torch.float16, torch.bfloat16, torch.float32, torch.float64}
        self.writes = ctypes.c_uint64.in_dll(library, "vramlab_rehearsal_writes")
        self.one_thread = OneThread(torch)
        self.room = (ctypes.c_uint64 * 8192)()
        self.weak_storage = torch.multiprocessing.reductions.StorageWeakRef

    def is_small(self, tensor):
        is_known_kind = tensor.dtype in self.kinds and tensor.layout is self.torch.strided
        return is_known_kind and tensor.numel() <= MAX_ELEMENTS and not tensor.is_nested

    def has_few_elements(self, tensor):
        """True if it is small, or repeats the elements of a small one: a mask of tokens in the width of a network."""
        if self.is_small(tensor):
            return True
        if tensor.dtype not in self.kinds or tensor.layout is not self.torch.strided or tensor.is_nested or tensor.numel() > MAX_REPEATED:
            return False
        return math.prod(size for size, stride in zip(tensor.shape, tensor.stride()) if stride) <= MAX_ELEMENTS

    def may_be_computed(self, host):
        """True if what is made of a tensor of the host may be computed. What is trained may not, unless it is always kept: no size depends
        on it before it changes, and it would take the room of what sizes depend on."""
        is_weight = host.requires_grad and host.numel() * host.element_size() > ALWAYS_KEPT
        return not is_weight and self.is_small(host)

    def has_room(self, tensor):
        """True if contents of a tensor's storage can be kept beside those that are."""
        size = tensor.untyped_storage().nbytes()
        if size <= ALWAYS_KEPT or self.kept + size <= MAX_KEPT:
            return True
        # A sweep looks at every twin: not for each tensor of a step that finds no room.
        self.asked_in_vain += 1
        if self.asked_in_vain % SWEEP_EVERY != 1:
            return False
        self.sweep()
        fits = self.kept + size <= MAX_KEPT
        self.asked_in_vain = 0 if fits else self.asked_in_vain
        return fits

    def sweep(self):
        """Forgets the contents of storages that are gone."""
        self.twins = Twins((key, twin) for key, twin in self.twins.items() if not twin.weak.expired())
        self.sweep_at = 2 * len(self.twins) + 256
        # What the script's own tensors hold is counted in `large`.
        self.kept = sum(twin.bytes for twin in self.twins.values() if twin.source is None)

    @staticmethod
    def version(tensor):
        try:
            return tensor._version
        except RuntimeError:
            return -1  # Tensors of inference mode count nothing.

    def storage(self, tensor):
        """Returns a tensor's storage; None for tensors without a single storage, as sparse ones and those of transforms."""
        if type(tensor) not in self.plain_types or tensor.layout is not self.torch.strided:
            return None
        try:
            return tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return None

    def find(self, tensor):
        """Returns the twin of a tensor's storage, if the tensor's contents are known."""
        storage, twin = self.held(tensor)
        return self.current(tensor, twin, storage) if twin is not None else None

    def held(self, tensor):
        """Returns a tensor's storage and the storage's twin, which may be that of earlier contents."""
        storage = self.storage(tensor) if self.twins and (self.large or tensor.numel() <= LARGE) else None
        return storage, self.twins.get(storage._cdata) if storage is not None else None

    def current(self, tensor, twin, storage):
        """Returns the twin of this storage, if it still has the tensor's contents."""
        try:
            version = tensor._version
        except RuntimeError:
            version = -1
        if twin.version != version or twin.address != storage.data_ptr() or twin.bytes != storage.nbytes():
            return None
        if tensor.is_conj() or tensor.is_neg():
            return None
        if twin.source is not None and twin.source[0]._version != twin.source[1]:
            return None
        if twin.storage is None and twin.work is None and twin.table is None:
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
        """Returns a CPU tensor over a twin, with the shape and strides of the tensor."""
        # In most cases the same tensor asks for its twin again. Outside inference mode, tensors that were made inside it cannot be changed.
        made, shape, strides, offset = twin.seen, tensor.shape, tensor.stride(), tensor.storage_offset()
        if (
            made is not None
            and made.shape == shape
            and made.stride() == strides
            and made.storage_offset() == offset
            and made.dtype is tensor.dtype
            and made.is_inference() == self.torch.is_inference_mode_enabled()
        ):
            return made
        made = self.torch.empty(0, dtype=tensor.dtype, device=self.cpu)
        twin.seen = made.set_(self.finished(twin).storage, offset, shape, strides)
        return made

    def finished(self, twin):
        """Returns a twin, with its contents."""
        return twin

    def register(self, tensor, contents=None):
        """Makes a tensor's storage known. Contents are a CPU tensor of the same layout that nothing else holds. Without contents, the
        caller writes into the returned view."""
        storage = tensor.untyped_storage()
        twin = Twin(self.weak_storage(storage), storage, self.version(tensor), contents)
        twin.storage = self.torch.UntypedStorage(twin.bytes, device="cpu") if contents is None else contents.untyped_storage()
        self.twins[storage._cdata] = twin
        self.kept += twin.bytes
        if len(self.twins) > self.sweep_at:
            self.sweep()
        return twin if contents is not None else self.view(tensor, twin)

    def keep_large(self, host, out):
        """Notes where the contents of a large tensor came from: slices of them are computed when they are asked for. Parameters are left
        out, and of the others the largest, if they are too many."""
        if type(out) is not self.torch.Tensor or type(host) is not self.torch.Tensor or not out.is_cuda or host.is_cuda:
            return
        if (self.is_small(out) and self.has_room(out)) or out.requires_grad or host.is_inference() or host.shape != out.shape:
            return
        if host.dtype is not out.dtype or not self.is_whole(out, host):
            return
        key, size = out.untyped_storage()._cdata, host.untyped_storage().nbytes()
        self.large = {key: size for key, size in self.large.items() if key in self.twins and not self.twins[key].weak.expired()}
        self.large[key] = size
        while sum(self.large.values()) > MAX_LARGE:
            largest = max(self.large, key=self.large.get)
            del self.large[largest]
            self.twins.pop(largest, None)
        if key in self.large:
            twin = self.register(out, host.detach())
            twin.source = (host, host._version)
            self.kept -= twin.bytes

    def is_whole(self, tensor, contents):
        """True if a CPU tensor may become a twin as it is: same layout, and as many bytes in its storage."""
        return (
            tensor.stride() == contents.stride()
            and tensor.dtype is contents.dtype
            and not (tensor.storage_offset() or contents.storage_offset())
            and tensor.untyped_storage().nbytes() == contents.untyped_storage().nbytes()
        )

    def forget(self, tensor):
        storage = self.storage(tensor)
        if storage is not None:
            self.twins.pop(storage._cdata, None)

    def covers(self, tensor):
        """True if a tensor covers its whole storage."""
        storage = self.storage(tensor)
        return storage is not None and tensor.numel() * tensor.element_size() == storage.nbytes()

    def forget_written(self):
        """Forgets contents that copies and collectives overwrote, which no version counter shows. After a graph or a kernel of
        another package all contents are doubtful."""
        self.seen_writes = self.writes.value
        room, count = self.room, self.library.vramlab_rehearsal_written(self.room, len(self.room) // 2)
        if count < 0:
            for twin in self.twins.values():
                twin.doubtful = AS_BEFORE
            return
        if not count or not self.twins:
            return
        ranges = [(room[2 * at], room[2 * at] + room[2 * at + 1]) for at in range(count)]
        for key in self.twins.touched(ranges):
            del self.twins[key]
