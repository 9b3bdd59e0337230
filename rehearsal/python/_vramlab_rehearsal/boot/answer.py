"""The figures that a process reports to the launcher."""

import contextlib
import json
import os
import sys

from . import endings, schema
from .growth import Growth
from .lines import BackwardLines
from .periods import Periods
from .phases import Phases
from .report import guarded, write_whole
from .roles import Roles
from .settings import SETTINGS
from .steps import Steps

# A trace with more entries is not read a second time for the workspaces.
MAX_ENTRIES_TWICE = 200000


class Answer:
    """The figures that this process reports to the launcher. They are written after each step, so that a crash loses little."""

    def __init__(self, torch):
        self.torch = torch
        self.values = None
        # Where some ranks of many were started.
        self.world = None
        self.counts = Steps()
        self.steps = 0
        self.seen = schema.Seen(evaluation=False, saving=False, generation=False)
        self.roles = Roles(torch)
        self.growth = Growth(torch)
        self.periods = Periods()
        self.phases = Phases(torch)
        self.lines = BackwardLines(torch)
        # Addresses of workspaces that PyTorch keeps for libraries, with their cards.
        self.workspaces = []
        # Number of allocations until the snapshot was written, by card.
        self.made = {}
        self.oom = None
        self.withheld = []
        # The highest peaks before the script reset them, by card.
        self.before_reset = {}
        self.ended = False

    def after_fork(self):
        """Starts anew in a forked child: its parent's figures are not its own."""
        self.counts.clear()
        self.steps, self.oom, self.before_reset = 0, None, {}
        self.roles.clear()
        self.growth.clear()
        self.lines.clear()
        self.phases.clear()
        self.ended = False

    def cards(self):
        torch = self.torch
        if not torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork():
            return []
        found = []
        for index in range(torch.cuda.device_count()):
            figures = torch.cuda.memory_stats(index)
            # A card on which not even the first allocation fits was used as well.
            if not figures.get("allocation.all.allocated") and not figures.get("num_ooms"):
                continue
            before = self.before_reset.get(index, (0, 0))
            found.append(schema.Card(
                index=index,
                peak_allocated=max(before[0], figures["allocated_bytes.all.peak"]),
                peak_reserved=max(before[1], figures["reserved_bytes.all.peak"]),
                ooms=figures["num_ooms"],
                made=self.made.get(index, figures["allocation.all.allocated"]),
            ))
        return found

    def host(self):
        """Returns the most bytes of the host that cards could read, page-locked and managed; zeros without the library."""
        import ctypes

        ask = getattr(ctypes.CDLL(None), "vramlab_rehearsal_host", None)
        peaks = (ctypes.c_uint64 * 2)()
        if ask is not None:
            ask(peaks)
        return schema.Host(locked=peaks[0], managed=peaks[1])

    def keep_peaks(self, index):
        """Keeps the peaks before the script resets them."""
        figures = self.torch.cuda.memory_stats(index)
        now = (figures.get("allocated_bytes.all.peak", 0), figures.get("reserved_bytes.all.peak", 0))
        before = self.before_reset.get(index, (0, 0))
        self.before_reset[index] = tuple(map(max, now, before))
        self.phases.note(index, figures, resets=True)

    @contextlib.contextmanager
    def reads_for_a_file(self):
        """Silences reads of a card for writing a file: they change no size."""
        places = self.values.reads.places if self.values else {}
        before = {key: place["count"] for key, place in places.items()}
        try:
            yield
        finally:
            for key in list(places):
                if key in before:
                    places[key]["count"] = before[key]
                else:
                    del places[key]

    def rank(self):
        """Returns the number of this rank, and the number of ranks."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        try:
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        except (KeyError, ValueError):
            return 0, 1

    def compiled(self):
        """Counts the compiled graphs that were in no cache."""
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is None:
            return schema.Compiled(new=0)
        inductor = dynamo.counters["inductor"]
        return schema.Compiled(new=inductor.get("fxgraph_cache_miss", 0) + inductor.get("fxgraph_cache_bypass", 0))

    def exception(self):
        """Returns the uncaught exception, if one ends the program."""
        error = getattr(sys, "last_value", None)
        if error is None:
            return None
        return schema.Exception(type=type(error).__name__, message=str(error)[:4000], out_of_memory=self.is_of_memory(error))

    def of_values(self):
        """Returns the report of the layer for values, if there is one."""
        if not self.values:
            return None
        report = self.values.report()
        places = [
            schema.Place(
                event=place["event"], where=place["where"], inside=place["inside"], operator=place["operator"], kind=place["kind"],
                bytes=place.get("bytes"), answer=place.get("answer"), count=place["count"],
            )
            for place in report["places"]
        ]
        return schema.Values(places=places, beyond=report["beyond"])

    def is_of_memory(self, error):
        """True if a card's memory ran out, or if that is why, or while it was handled, this was raised."""
        kind = getattr(self.torch, "OutOfMemoryError", None) or self.torch.cuda.OutOfMemoryError
        left, seen = [error], set()
        while left:
            one = left.pop()
            if one is None or id(one) in seen:
                continue
            if isinstance(one, kind) or "CUDA out of memory" in str(one):
                return True
            seen.add(id(one))
            left += [one.__cause__, one.__context__]
        return False

    def write(self, why):
        """Writes the figures. Returns True if there are any."""
        cards = self.cards()
        if not cards:
            return False
        rank, world = self.rank()
        answer = schema.Answer(
            pid=os.getpid(), rank=rank, world=world, why=why, steps=self.steps,
            torch=self.torch.__version__, cards=cards, seen=self.seen,
            can_generate="transformers.generation.utils" in sys.modules, held=self.roles.held, oom=self.oom,
            exception=self.exception() if why == "exit" else None, compiled=self.compiled(),
            values=self.of_values(), withheld=self.withheld[:1000],
            entries=SETTINGS["entries"], backward=list(self.roles.backward), inputs=list(self.roles.inputs),
            growth=self.growth.report(), periods=self.periods.report(self.steps, self.growth), lines=self.lines.report(), workspaces=self.workspaces,
            host=self.host(), phases=self.phases.report(),
        )
        write_whole("%d%s" % (os.getpid(), endings.ANSWER), json.dumps(answer, default=str))
        return True

    def write_snapshot(self, collect=True):
        """Writes PyTorch's snapshot, and finds who holds what grows. Python's garbage collector waits: what it freed in between would be
        in the snapshot and have no holder."""
        import gc

        waits = gc.isenabled()
        gc.disable()
        try:
            self.write_snapshot_and_holders(collect)
        finally:
            if waits:
                gc.enable()

    def write_snapshot_and_holders(self, collect):
        import pickle

        path = os.path.join(SETTINGS["answers"], "%d%s" % (os.getpid(), endings.SNAPSHOT))
        snapshot = self.torch.cuda.memory._snapshot()
        self.made = {}
        self.made = {card["index"]: card["made"] for card in self.cards()}
        with open(path + ".part", "wb") as file:
            pickle.dump(snapshot, file)
        os.replace(path + ".part", path)
        guarded(self.growth.find_holders)(snapshot["device_traces"], collect)
        if collect:
            guarded(self.find_workspaces)()

    def find_workspaces(self):
        """Finds the workspaces that PyTorch keeps for cuBLAS: it frees them on demand."""
        free = getattr(self.torch._C, "_cuda_clearCublasWorkspaces", None)
        traces = self.torch.cuda.memory._snapshot()["device_traces"] if free else []
        if not traces or sum(map(len, traces)) > MAX_ENTRIES_TWICE:
            return
        free()
        for card, trace in enumerate(self.torch.cuda.memory._snapshot()["device_traces"]):
            freed = (entry for entry in trace[len(traces[card]):] if entry["action"] == "free_requested")
            self.workspaces += [[card, entry["addr"]] for entry in freed]

    def end(self, why):
        """Writes everything, once."""
        if self.ended:
            return
        self.ended = True
        # The layer for values has no part in this.
        with self.torch._C.DisableTorchFunction():
            ended_by_memory = self.oom is not None and why == "exit" and (self.exception() or {}).get("out_of_memory")
            if self.cards() and not ended_by_memory:
                if not self.steps:
                    self.roles.hold(None)
                self.write_snapshot()
            # The answer comes last: a reader who finds it finds the snapshot as well.
            self.write(why)


# The answer of this process, once it has imported `torch`.
ANSWERS_HERE = []
