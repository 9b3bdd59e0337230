"""Reports reads of unknown contents of a card: with the line of the script, once for each place."""

import json
import os
import sys
import threading

from ..libraries import LOGGERS, is_library
from .branches import decides_nothing
from .operators import ARITHMETIC, SHAPING

# Most places in the code that are counted apart.
MAX_PLACES = 1000

# Operators whose results are numbers, lists and tensors of the host.
READS = frozenset(
    "item tolist cpu numpy __bool__ __int__ __float__ __index__ __complex__ __contains__ __format__ __repr__ __array__ "
    "equal allclose is_nonzero".split()
)
BRANCHING = frozenset("__bool__ is_nonzero equal allclose __contains__".split())
# Operators whose results have a size that depends on contents.
SIZED = frozenset(
    "nonzero argwhere where masked_select unique _unique2 unique_consecutive unique_dim bincount repeat_interleave one_hot "
    "__getitem__ to_sparse to_sparse_csr coalesce combinations".split()
)


# Operators that copy contents to the host: nobody has read them there yet.
CARRYING = frozenset("cpu to copy_".split())
# Operators on such contents whose results have sizes that do not depend on them, and are not known any more.
PASSING = frozenset(
    "to cuda cpu copy_ detach clone contiguous pin_memory is_pinned share_memory_ requires_grad_ half bfloat16 double mean type".split()
)
# Files of libraries that read contents for a log, a picture or a metric, or that decide no size by them.
LOGGING = tuple(
    f"/{part}"
    for part in (
        *(f"{package}/" for package in LOGGERS),
        *"torch/utils/tensorboard/ torchmetrics/ evaluate/ torchvision/utils.py transformers/trainer_pt_utils.py".split(),
        # States of random generators, which ranks compare.
        "torch/distributed/tensor/_random.py",
    )
)
# Most copies on the host that are remembered.
MAX_CARRIED = 4096


class State:
    """State of the work of one thread."""

    __slots__ = ("busy", "told", "offered", "quiet", "missed", "operator")

    def __init__(self):
        self.busy = False
        # True if contents were shown to the library, or numbers queued.
        self.told = False
        # Contents that were put off, and are computed if the library asks for them.
        self.offered: tuple = ()
        # True while reads are not reported. Below, the bytes of the last read that was not reported.
        self.quiet = False
        self.missed = 0
        self.operator = ""


class Doing(threading.local):
    """The state of the calling thread."""

    def __init__(self):
        self.now = State()


def is_of_a_log(file):
    return any(part in file for part in LOGGING)


def is_size(name, args, tensor):
    """True if the contents of one operand of an operator of `SIZED` decide the size of its result."""
    if name == "__getitem__":
        return bool(args) and tensor is not args[0] and str(tensor.dtype) in ("torch.bool", "torch.uint8")
    if name == "where":
        return len(args) == 1
    return name != "repeat_interleave" or len(args) == 1 or tensor is not args[0]


class Reads:
    def __init__(self, torch):
        self.doing = Doing()
        self.places = {}
        # Number of reports from places beyond those that are counted apart.
        self.beyond = 0
        # Copies of unknown contents that the host has not read, by address: bytes and the place where each was made.
        self.carried = {}
        self.own = os.path.dirname(torch.__file__) + os.sep
        self.saving = self.own + "serialization.py"
        self.log = os.environ.get("VRAMLAB_REHEARSAL_LOG")

    def where(self):
        """Returns the line of the script that is running, and the innermost line outside PyTorch."""
        frame = sys._getframe(1)
        user, inside = self.lines(frame)
        if inside is None and threading.current_thread() is not threading.main_thread():
            # A thread of PyTorch's own, as in the backward pass: the main thread waits for it.
            frame = sys._current_frames().get(threading.main_thread().ident)
            user, inside = self.lines(frame)
        return user or inside or "?", inside or "?"

    def lines(self, frame):
        user = inside = None
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith((self.own, "<")):
                line = f"{file}:{frame.f_lineno}"
                inside = inside or line
                if self.is_of_the_user(file):
                    user = line
                    break
            frame = frame.f_back
        return user, inside

    def is_for_a_log(self, kind):
        """True if a library reads for a log, or if a branch decides only what is saved, printed or remembered for that."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith((self.own, "<")):
            if frame.f_code.co_filename.startswith(self.own) and is_of_a_log(frame.f_code.co_filename):
                return True
            frame = frame.f_back
        try:
            return kind == "branch" and frame is not None and decides_nothing(frame)
        except Exception:  # Names of a script may stand for anything.
            return False

    def tell(self, event, operator, kind, place=None, **more):
        user, inside = place or self.where()
        if kind in ("branch", "inside") and self.is_for_a_log(kind):
            kind = "log"
        key = (event, user, inside, operator, kind)
        found = self.places.get(key)
        if found is not None:
            found["count"] += 1
            return
        if len(self.places) >= MAX_PLACES:
            self.beyond += 1
            return
        found = {"event": event, "where": user, "inside": inside, "operator": operator, "kind": kind, "count": 1, **more}
        self.places[key] = found
        if self.log:
            line = json.dumps({"pid": os.getpid(), "name": f"{operator} at {user}"[:200], **found, "count": None})
            try:
                with open(self.log, "a") as log:
                    log.write(line + "\n")
            except OSError:
                pass

    def carry(self, address, size, operator, place):
        """Remembers a copy of unknown contents on the host."""
        self.carried.pop(address, None)
        self.carried[address] = (size, operator, place)
        if len(self.carried) > MAX_CARRIED:
            del self.carried[next(iter(self.carried))]

    def kind(self, size):
        """Returns the kind of a read of numbers: one, many, or many for a log."""
        if size <= 16:
            return "number"
        frame = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if is_of_a_log(file):
                return "log"
            if self.is_of_the_user(file):
                break
            frame = frame.f_back
        return "contents"

    def is_of_the_user(self, file):
        return not (is_library(file) or file.startswith((self.own, "<")))

    def overwritten(self, address, size):
        """Forgets copies in memory of the host that now holds something else."""
        for at in [at for at, copy in self.carried.items() if at < address + size and address < at + copy[0]]:
            del self.carried[at]

    def is_saved(self):
        """Tells if `torch.save` copies contents, which go to a file: no size depends on them."""
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith((self.own, "<")):
            if frame.f_code.co_filename == self.saving:
                return True
            frame = frame.f_back
        return False

    def on_host(self, name, tensors, args):
        """Called before an operator takes tensors of the host. Tells if it reads such a copy; returns the copy if its result
        is not known either, because of it."""
        passed = None
        for tensor in tensors:
            try:
                start = tensor.data_ptr()
            except RuntimeError:
                continue
            end = start + tensor.numel() * tensor.element_size()
            copy = self.carried.get(start)
            address = start
            if copy is None and name not in PASSING:
                found = ((at, copy) for at, copy in self.carried.items() if at < end and start < at + copy[0])
                address, copy = next(found, (0, None))
            if copy is None:
                continue
            if name in PASSING or name in ARITHMETIC or name in SHAPING:
                return copy
            # A mask among the operands is read.
            if name in SIZED and not is_size(name, args, tensor):
                passed = copy
                continue
            if name in ("__repr__", "__format__", "__str__"):
                continue
            del self.carried[address]
            place, size = copy[2], tensor.numel() * tensor.element_size()
            kind = "size" if name in SIZED else "branch" if name in BRANCHING else self.kind(size)
            self.tell("unknown_read", name, kind, place=self.where() if name in READS else place, bytes=size, answer="zeros")
        return passed

    def on_read(self, _address, to, size):
        doing = self.doing.now
        if doing.quiet:
            doing.missed = size
            return
        operator = doing.operator
        if not operator and self.is_saved():
            return
        if operator in CARRYING or (size > 16 and operator not in READS and operator not in SIZED):
            self.carry(to, size, operator, self.where())
            return
        kind = "size" if operator in SIZED else "inside"
        if not operator:
            kind, operator = "outside", "none"
        elif operator in BRANCHING:
            kind = "branch"
        elif operator in READS or operator in ("to", "copy_"):
            kind = self.kind(size)
        self.tell("unknown_read", operator, kind, bytes=size, answer="zeros")
