"""Lines of the forward pass to which allocations of the backward pass belong: its threads run no Python, so they have no lines of their own."""

import bisect
import sys

from ..libraries import is_library
from . import schema
from .report import guarded
from .settings import SETTINGS

# Number of first steps that are followed; of later ones, each after a step that made another number of allocations than all of these; and of
# those that are followed from where they differ: from the first operator on that no step before them had, or from a backward pass on before
# which more memory is requested than before all of these. Other steps get their lines from one that made its allocations at the same lines.
STEPS_WITH_LINES, MORE_WITH_LINES, AT_ONCE = 3, 8, 8
# From so many times as much on, more memory is more: what a script keeps for a log grows, too.
MORE_MEMORY = 1.01
# Most marks.
MAX_LINE_MARKS = 50000


class Course:
    """Where steps that were followed are after some operators."""

    __slots__ = ("before", "following", "made", "place")

    def __init__(self, before):
        self.before, self.following = before, {}
        # How many nodes of autograd the step has made by then, and the place of the last ones; None if the operator made none.
        self.made = self.place = None


class BackwardLines:
    """Marks the start of each node of the backward pass, with the line whose operator made the node."""

    def __init__(self, torch):
        self.torch, self.values = torch, None
        # Returns how many nodes of autograd there have been; releases before 2.1 do not say.
        self.count = None
        self.clear()

    def clear(self):
        # Places: frames, innermost first. Marks: the card, the number of allocations on it until then, the place, the node's name.
        self.places, self.numbers, self.marks = [], {}, []
        self.more, self.at_once, self.followed = MORE_WITH_LINES, AT_ONCE, set()
        self.course = Course(None)
        # Requested bytes before a backward pass that was followed, the most of them.
        self.most = 0
        self.begin(True)

    def begin(self, is_on):
        """A step begins."""
        self.at, self.first = self.course, self.count() if self.count else None
        # Nodes that were made before the step was followed: the numbers of the last ones at each place.
        self.earlier = []
        self.turn(is_on)

    def turn(self, is_on):
        self.is_on = is_on
        if self.values:
            self.values.made = self.made if is_on else None
            self.values.begins = self.begins if is_on or (self.at_once > 0 and self.first is not None) else None

    def install(self, values):
        """The layer for values sees each operator of the forward pass."""
        if SETTINGS["stacks"] and hasattr(self.torch.autograd.graph.Node, "register_prehook"):
            self.values = values
            self.count = getattr(self.torch.autograd, "_get_sequence_nr", None)
            self.begin(True)
            guarded(self.watch_recomputing)()

    def watch_recomputing(self):
        """Checkpointing with `use_reentrant` runs the forward pass again in a thread of autograd, which has no mode: there it gets one."""
        import functools

        lines, of_torch = self, self.torch
        checkpoint = getattr(getattr(of_torch, "utils", None), "checkpoint", None)
        kind = getattr(checkpoint, "CheckpointFunction", None)
        if kind is None:
            return
        backward = kind.backward

        class Mode(of_torch.overrides.TorchFunctionMode):  # type: ignore[name-defined]
            def __torch_function__(self, function, types, args=(), kwargs=None):
                out = function(*args, **(kwargs or {}))
                lines.recomputed(out)
                return out

        @functools.wraps(backward)
        def marked(*args, **kwargs):
            # What is compiled would be compiled again with a mode. On the CPU there is no other thread, and the mode is there.
            if not lines.is_on or has_compiled() or of_torch.overrides._get_current_function_mode() is not None:
                return backward(*args, **kwargs)
            with Mode():
                return backward(*args, **kwargs)

        kind.backward = staticmethod(marked)

    def recomputed(self, out):
        """Called with the result of an operator in a thread of autograd, whose nodes have numbers of their own."""
        for one in out if type(out) in (tuple, list) else (out,):
            node = getattr(one, "grad_fn", None) if isinstance(one, self.torch.Tensor) else None
            if node is not None and "vramlab" not in node.metadata:
                guarded(self.mark)(node, self.place(), is_exact=True)

    def after_step(self, steps, requests):
        """`requests` are the numbers of allocations of this step, by card."""
        if self.is_on:
            self.followed.add(requests)
        wanted = steps < STEPS_WITH_LINES
        if not wanted and requests not in self.followed and self.more > 0:
            self.more -= 1
            wanted = True
        self.begin(wanted)

    def begins(self, name):
        """Called with the name of each operator before it runs: a step that does what none before it did is followed from there on."""
        following = self.at.following.get(name)
        if following is None:
            if not self.is_on:
                self.follow_from_here()
            following = self.at.following[name] = Course(self.at)
        self.at = following

    def follow_from_here(self):
        self.at_once -= 1
        self.earlier = self.made_until(self.at)
        self.turn(True)

    def before_backward(self, roots):
        """Called with the tensors at which a backward pass begins: one of more memory is followed. Its operators were those of another step."""
        values = self.values
        if values is None or values.begins is None:
            return
        requested = self.torch._C._cuda_memoryStats(self.torch._C._cuda_getDevice())["requested_bytes"]["all"]["current"]
        if not self.is_on and requested > MORE_MEMORY * self.most:
            self.follow_from_here()
            for root in roots:
                self.mark(root.grad_fn, self.place())
        if self.is_on:
            self.most = max(self.most, requested)

    def made_until(self, course):
        """Returns the numbers of nodes that the operators until there made, with their places, in order."""
        found = []
        while course is not None:
            if course.made is not None:
                found.append((course.made, course.place))
            course = course.before
        return found[::-1]

    def made(self, out):
        """Called with the result of an operator: marks the nodes that it made."""
        try:
            for one in out if type(out) in (tuple, list) else (out,):
                node = getattr(one, "grad_fn", None) if isinstance(one, self.torch.Tensor) else None
                if node is not None and "vramlab" not in node.metadata:
                    place = self.place()
                    if self.first is not None:
                        self.at.made, self.at.place = self.number_of(node), place
                    self.mark(node, place)
        except Exception:
            # A node that takes no hooks: allocations of the backward pass stay without lines.
            self.more = self.at_once = 0
            self.turn(False)

    def mark(self, node, place, is_exact=False):
        """Marks a node, and those that follow it in the backward pass. `is_exact`: all were made at the place."""
        nodes = [node]
        while nodes:
            node = nodes.pop()
            # Nothing here keeps a node: it would keep what it saved.
            if node is None or "vramlab" in node.metadata:
                continue
            node.metadata["vramlab"] = True
            name = type(node).__name__
            if name == "AccumulateGrad":
                continue
            node.register_prehook(self.starts(place if is_exact else self.place_of(node, place), name))
            nodes.extend(following for following, _ in node.next_functions)

    def number_of(self, node):
        """Returns the number of a node in this step."""
        return node._sequence_nr() - self.first

    def place_of(self, node, place):
        """Returns the place of a node that was reached from one that was made at a place."""
        # Threads of the backward pass have numbers of their own: what they make has the place from which it was reached.
        number = self.number_of(node) if self.earlier else -1
        if number < 0 or number > self.earlier[-1][0]:
            return place
        return self.earlier[bisect.bisect_left(self.earlier, (number, -1))][1]

    def starts(self, place, name):
        marks, core = self.marks, self.torch._C

        def started(_gradients):
            if len(marks) < MAX_LINE_MARKS:
                card = core._cuda_getDevice()
                marks.append([card, core._cuda_memoryStats(card)["allocation"]["all"]["allocated"], place, name])

        return started

    def place(self):
        """Returns the number of the place that runs: the innermost line outside of PyTorch, and the innermost of the script's own."""
        frame, found = sys._getframe(1), []
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith("<") and "/torch/" not in file:
                own = not is_library(file)
                if own or not found:
                    found.append((file, frame.f_lineno, frame.f_code.co_name))
                if own:
                    break
            frame = frame.f_back
        found = tuple(found)
        number = self.numbers.get(found)
        if number is None:
            number = self.numbers[found] = len(self.places)
            self.places.append(found)
        return number

    def report(self):
        return schema.Lines(places=self.places, marks=self.marks)


def has_compiled():
    """True if `torch.compile` compiled something."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return bool(counters and counters.get("frames"))
