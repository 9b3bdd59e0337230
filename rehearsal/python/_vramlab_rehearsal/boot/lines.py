"""Lines of the forward pass to which allocations of the backward pass belong: its threads run no Python, so they have no lines of their own."""

import sys

from . import schema
from .places import is_library
from .settings import SETTINGS

# Number of first steps that are followed; and of later ones, each after a step that made another number of allocations than all of these. Other
# steps get their lines from one of these that made its allocations at the same lines.
STEPS_WITH_LINES, MORE_WITH_LINES = 3, 8
# Most marks.
MAX_LINE_MARKS = 50000


class BackwardLines:
    """Marks the start of each node of the backward pass, with the line whose operator made the node."""

    def __init__(self, torch):
        self.torch, self.values = torch, None
        self.clear()

    def clear(self):
        # Places: frames, innermost first. Marks: the card, the number of allocations on it until then, the place, the node's name.
        self.places, self.numbers, self.marks = [], {}, []
        self.more, self.followed = MORE_WITH_LINES, set()
        self.turn(True)

    def turn(self, is_on):
        self.is_on = is_on
        if self.values:
            self.values.made = self.made if is_on else None

    def install(self, values):
        """The layer for values sees each operator of the forward pass."""
        if SETTINGS["stacks"] and hasattr(self.torch.autograd.graph.Node, "register_prehook"):
            self.values = values
            self.turn(True)

    def after_step(self, steps, requests):
        """`requests` are the numbers of allocations of this step, by card."""
        if self.is_on:
            self.followed.add(requests)
        if steps < STEPS_WITH_LINES:
            return
        wanted = requests not in self.followed and self.more > 0
        self.more -= wanted
        if wanted != self.is_on:
            self.turn(wanted)

    def made(self, out):
        """Called with the result of an operator: marks the nodes that it made."""
        try:
            for one in out if type(out) in (tuple, list) else (out,):
                node = getattr(one, "grad_fn", None) if isinstance(one, self.torch.Tensor) else None
                if node is not None and "vramlab" not in node.metadata:
                    self.mark_nodes(node)
        except Exception:
            # A node that takes no hooks: allocations of the backward pass stay without lines.
            self.more = 0
            self.turn(False)

    def mark_nodes(self, node):
        place, nodes = self.place(), [node]
        while nodes:
            node = nodes.pop()
            # Nothing here keeps a node: it would keep what it saved.
            if node is None or "vramlab" in node.metadata:
                continue
            node.metadata["vramlab"] = True
            name = type(node).__name__
            if name == "AccumulateGrad":
                continue
            node.register_prehook(self.starts(place, name))
            nodes.extend(following for following, _ in node.next_functions)

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


