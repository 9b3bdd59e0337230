"""Reports reads of unknown contents of a card: with the line of the script, once for each place."""

import json
import os
import sys
import threading

# Most places in the code that are counted apart.
MAX_PLACES = 1000

# Operators whose results are numbers, lists and tensors of the host.
READS = frozenset(
    "item tolist cpu numpy __bool__ __int__ __float__ __index__ __complex__ __contains__ __format__ __repr__ __array__ "
    "equal allclose is_nonzero".split()
)
# Operators whose results have a size that depends on contents.
SIZED = frozenset(
    "nonzero argwhere where masked_select unique _unique2 unique_consecutive unique_dim bincount repeat_interleave one_hot "
    "__getitem__ to_sparse to_sparse_csr coalesce combinations".split()
)


class State:
    """State of the work of one thread."""

    __slots__ = ("busy", "told", "quiet", "missed", "operator")

    def __init__(self):
        self.busy = False
        # True if contents were shown to the library, or numbers queued.
        self.told = False
        # True while reads are not reported. Below, the bytes of the last read that was not reported.
        self.quiet = False
        self.missed = 0
        self.operator = ""


class Doing(threading.local):
    """The state of the calling thread."""

    def __init__(self):
        self.now = State()


class Reads:
    def __init__(self, torch):
        self.doing = Doing()
        self.places = {}
        # Number of reports from places beyond those that are counted apart.
        self.beyond = 0
        self.own = os.path.dirname(torch.__file__) + os.sep
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
                if "site-packages" not in file and "dist-packages" not in file and not file.startswith(sys.base_prefix + "/lib/"):
                    user = line
                    break
            frame = frame.f_back
        return user, inside

    def tell(self, event, operator, kind, **more):
        user, inside = self.where()
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

    def on_read(self, _address, size):
        doing = self.doing.now
        if doing.quiet:
            doing.missed = size
            return
        operator = doing.operator
        kind = "size" if operator in SIZED else "inside"
        if not operator:
            kind, operator = "outside", "none"
        elif operator in ("__bool__", "is_nonzero", "equal", "allclose", "__contains__"):
            kind = "branch"
        elif operator in READS or operator in ("to", "copy_"):
            kind = "number" if size <= 16 else "contents"
        self.tell("unknown_read", operator, kind, bytes=size, answer="zeros")
