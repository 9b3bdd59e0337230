"""The phases of a run: loading, training, evaluation, generation, saving, resuming. Each has the most that it took."""

import contextlib

from . import schema
from .settings import SETTINGS

LOADING, TRAINING, EVALUATION, GENERATION, SAVING, RESUMING = "load", "train", "evaluate", "generate", "save", "resume"


class Phases:
    """What the program does, and the peaks of each phase. PyTorch's peaks are reset where one phase ends and the next begins."""

    def __init__(self, torch):
        self.torch = torch
        self.clear()

    def clear(self):
        self.name = LOADING
        # By phase and card.
        self.found = {}
        # By card: the number of allocations before what the peaks of PyTorch count.
        self.since = {}

    def begin(self, name):
        """Ends the phase, and begins this one."""
        if name == self.name or not SETTINGS.get("phases"):
            return
        for card in self.cards():
            # Whoever resets the peaks notes them before.
            self.torch._C._cuda_resetPeakMemoryStats(card)
        self.name = name

    @contextlib.contextmanager
    def inside(self, name):
        """A phase within another one, which goes on afterwards."""
        before = self.name
        self.begin(name)
        try:
            yield
        finally:
            self.begin(before)

    def cards(self):
        cuda = self.torch.cuda
        return range(cuda.device_count()) if cuda.is_initialized() and not cuda._is_in_bad_fork() else ()

    def note(self, card, figures, resets=False):
        """Notes the peaks until now. `resets`: PyTorch's are reset after that."""
        made = figures.get("allocation.all.allocated", 0)
        if not made:
            return
        known = self.found.setdefault((self.name, card), schema.Phase(name=self.name, card=card, peak_allocated=0, peak_reserved=0, since=0, until=0))
        allocated, reserved = figures["allocated_bytes.all.peak"], figures["reserved_bytes.all.peak"]
        if allocated > known["peak_allocated"]:
            known.update(peak_allocated=allocated, since=self.since.get(card, 0), until=made)
        known["peak_reserved"] = max(known["peak_reserved"], reserved)
        if resets:
            self.since[card] = made

    def report(self):
        """Returns the phases, in the order in which they began."""
        if not SETTINGS.get("phases"):
            return []
        for card in self.cards():
            self.note(card, self.torch.cuda.memory_stats(card))
        return list(self.found.values())


def watch(phases, network):
    """Tells the phases by what a program calls. `network(module)` is true of what is trained; evaluation, saving and generation are told where they are seen."""
    import functools

    torch = phases.torch
    made, train, load = torch.optim.Optimizer.__init__, torch.nn.Module.train, torch.load
    # True if the newest optimizer has made no step: what is loaded then belongs to the training that goes on.
    fresh = [False]

    @functools.wraps(made)
    def counted(optimizer, *args, **kwargs):
        if phases.name == LOADING:
            phases.begin(TRAINING)
        fresh[0] = True
        result = made(optimizer, *args, **kwargs)
        for kind in type(optimizer).__mro__:
            restore(kind)
        return result

    def restore(kind):
        """Marks the method of a class that puts states back."""
        own = kind.__dict__.get("load_state_dict")
        if own is None or hasattr(own, "__wrapped__"):
            return

        @functools.wraps(own)
        def restored(*args, **kwargs):
            with phases.inside(RESUMING):
                return own(*args, **kwargs)

        kind.load_state_dict = restored

    @functools.wraps(train)
    def trained(module, mode=True):
        if ((not mode and phases.name == TRAINING and module.training) or (mode and phases.name == EVALUATION)) and network(module):
            phases.begin(TRAINING if mode else EVALUATION)
        return train(module, mode)

    @functools.wraps(load)
    def loaded(*args, **kwargs):
        with phases.inside(RESUMING if fresh[0] and phases.name != LOADING else phases.name):
            return load(*args, **kwargs)

    def after_step(*_):
        fresh[0] = False

    torch.optim.Optimizer.__init__, torch.nn.Module.train, torch.load = counted, trained, loaded
    return after_step
