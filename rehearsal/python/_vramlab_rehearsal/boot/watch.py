"""Counts steps, and ends the program after the requested number."""

import json
import os
import sys
import time

from . import endings, phases, schema
from .answer import ANSWERS_HERE, Answer
from .made_up import without_downloads
from .places import user_line
from .report import guarded, write_whole
from .settings import SETTINGS

# Most time that is spent on telling where memory ran out: a script may run out in every step.
MOST_SECONDS_OF_TELLING = 10


class Watch:
    """Counts the steps of optimizers, and ends the program after the requested number."""

    def __init__(self, answer):
        self.answer = answer
        self.torch = answer.torch
        # Optimizers that the script made. These references do not keep them alive.
        self.optimizers = []
        # When the first step was over; and whether other ranks make no steps that this one could wait for.
        self.first_step, self.alone = None, False
        # The step until which a run goes on although its memory is flat, and that until which it does if memory grew in one of several like steps.
        self.cheap_until, self.told_until = None, 0
        # Time that was spent on telling where memory ran out.
        self.seconds_of_telling = 0.0

    def install(self):
        torch, answer = self.torch, self.answer
        started = schema.Started(torch=torch.__version__, cuda=torch.version.cuda)
        write_whole("%d%s" % (os.getpid(), endings.STARTED), json.dumps(started))
        if torch.version.cuda is None:
            return
        self.record_history()
        self.keep_resets()
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_optimizer_step_post_hook(guarded(self.after_step))
        self.mark_uses()
        if SETTINGS.get("phases"):
            register_optimizer_step_post_hook(phases.watch(answer.phases, self.is_trained))
        torch.cuda._lazy_call(self.at_first_use)
        guarded(answer.roles.install)()
        if SETTINGS["world"]:
            from .world import World

            answer.world = World(torch)
            guarded(answer.world.install)()
        if SETTINGS["values"]:
            from ..values.start import install

            answer.values = install(torch)
            answer.roles.watch_inputs(answer.values)
            guarded(answer.lines.install)(answer.values)
            answer.roles.begins = guarded(answer.lines.before_backward)
        import atexit

        atexit.register(guarded(answer.end), "exit")
        os.register_at_fork(after_in_child=answer.after_fork)
        self.watch_hard_exits()
        self.listen()

    def watch_hard_exits(self):
        """`os._exit` runs nothing that was registered for the end."""
        leaves, end = os._exit, guarded(self.answer.end)

        def told(status):
            end("exit")
            leaves(status)

        os._exit = told

    def record_history(self):
        torch = self.torch
        own = torch.cuda.memory._record_memory_history
        # Not "all": with lines of frees, those while an exception unwinds C++ lose the exception (checkpointing stops by one).
        context = {"context": "alloc", "stacks": "python"} if SETTINGS["stacks"] else {"context": None}
        torch.cuda._lazy_call(lambda: own(enabled="all", max_entries=SETTINGS["entries"], **context))
        # The script's own recording would end this one; its snapshots have all that it wants.
        torch.cuda.memory._record_memory_history = lambda *args, **kwargs: None

    def keep_resets(self):
        core, keep = self.torch._C, guarded(self.answer.keep_peaks)
        reset = core._cuda_resetPeakMemoryStats

        def kept(index):
            keep(index)
            return reset(index)

        core._cuda_resetPeakMemoryStats = kept

    def at_first_use(self):
        self.torch._C._cuda_attach_out_of_memory_observer(guarded(self.at_out_of_memory))

    def at_out_of_memory(self, card, requested, total, free):
        """Tells where memory ran out. The last time counts: PyTorch goes on without a workspace of cuDNN, and a script may try again."""
        answer = self.answer
        count = 1 if answer.oom is None else answer.oom["count"] + 1
        if answer.oom is not None and self.seconds_of_telling > MOST_SECONDS_OF_TELLING:
            answer.oom["count"] = count
            return
        begun = time.monotonic()
        with self.torch._C.DisableTorchFunction():
            figures = self.torch.cuda.memory_stats(card)
            answer.oom = schema.Oom(
                card=card, requested=requested, free=free, count=count, where=user_line(),
                allocated=figures["allocated_bytes.all.current"], reserved=figures["reserved_bytes.all.current"], step=answer.steps,
            )
            # Record the addresses now: later the script has freed everything.
            if not self.optimizers:
                answer.roles.hold(None)
            for made in self.optimizers:
                answer.roles.hold(made(), everything=True)
            # What a collection of garbage frees here would be free for the script's next try.
            answer.write_snapshot(collect=False)
            answer.write("running")
        self.seconds_of_telling += time.monotonic() - begun

    def after_step(self, optimizer, _args, _kwargs):
        answer = self.answer
        if answer.ended:
            return
        steps = max(answer.steps, answer.counts.count(optimizer))
        with self.torch._C.DisableTorchFunction():
            answer.roles.hold(optimizer)
            is_new = steps > answer.steps
            if is_new:
                answer.steps = steps
                guarded(answer.growth.mark)()
                if steps > 1:
                    guarded(answer.periods.look)()
                answer.lines.after_step(steps, answer.growth.requests())
                if steps <= 8 or steps % 16 == 0:
                    answer.write("running")
        until = SETTINGS["until"]
        if (SETTINGS["steps"] and steps >= SETTINGS["steps"]) or (is_new and self.is_settled(steps)):
            self.stop("steps")
        elif until and all(answer.seen[what] for what in until):
            self.stop("seen")

    def is_settled(self, steps):
        """True if memory is flat, or if it was looked at for long enough."""

        settled = SETTINGS["settled"]
        if not settled:
            return False
        if self.first_step is None:
            self.first_step = time.monotonic()
        world = SETTINGS["world"]
        started = len(world["started"]) if world else self.answer.rank()[1]
        needed = self.answer.periods.needed(self.answer.growth, started < 2)
        if steps < settled["least"]:
            return False
        is_over = time.monotonic() - self.first_step >= settled["seconds"]
        growth = self.answer.growth
        if started < 2:
            self.told_until = max(self.told_until, growth.to_tell_a_period())
        most = max(settled["most"], needed, self.told_until)
        if steps >= most or (is_over and steps >= settled["most"]):
            return True
        # Where the script says how many steps a period has, whole periods say what grows.
        is_flat = (growth.flat or (growth.repeats and needed > 0)) and steps >= needed
        if is_flat and started < 2:
            if self.cheap_until is None:
                self.cheap_until = min(settled["most"], steps + growth.cheap_steps())
            is_flat = steps >= self.cheap_until
        if started < 2:
            return is_flat or is_over
        return self.agreed(steps, started, "over" if is_over else "flat" if is_flat else "differs")

    def agreed(self, steps, started, own):
        """Ends all ranks after the same step: as soon as memory is flat in all of them, or the time of one is over. A rank that does
        not come within some seconds makes no such steps; then the greatest number of steps decides."""
        if self.alone:
            return False
        name = "step-%d" % steps
        write_whole("%s.%d" % (name, self.answer.rank()[0]), own)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            votes = [entry for entry in os.listdir(SETTINGS["answers"]) if entry.startswith(name + ".") and not entry.endswith(".part")]
            if len(votes) >= started:
                said = []
                for vote in votes:
                    with open(os.path.join(SETTINGS["answers"], vote), encoding="utf-8") as file:
                        said.append(file.read())
                return "over" in said or all(one == "flat" for one in said)
            time.sleep(0.002)
        self.alone = True
        return False

    def stop(self, why):
        answer = self.answer
        answer.end(why)
        # Other ranks may still wait for this one.
        if answer.rank()[1] > 1:
            if answer.world:
                answer.world.wait([])
            until = time.monotonic() + 120
            while time.monotonic() < until and not os.path.exists(os.path.join(SETTINGS["answers"], endings.STOP)):
                time.sleep(0.05)
        leave(0)

    def mark_uses(self):
        """Marks activities besides steps: each may take more memory than a step."""
        torch, seen = self.torch, self.answer.seen
        made, train, save = torch.optim.Optimizer.__init__, torch.nn.Module.train, torch.save
        import functools
        import weakref

        @functools.wraps(made)
        def counted(optimizer, *args, **kwargs):
            result = made(optimizer, *args, **kwargs)
            self.optimizers.append(weakref.ref(optimizer))
            self.answer.counts.made(optimizer)
            return result

        @functools.wraps(train)
        def trained(module, mode=True):
            # Networks that are not trained, and those that are only being loaded, are put in this mode as well.
            evaluates = not mode and module.training and self.optimizers and not seen["evaluation"]
            if evaluates and any(p.requires_grad for p in module.parameters()):
                seen["evaluation"] = True
            return train(module, mode)

        @functools.wraps(save)
        def saved(*args, **kwargs):
            seen["saving"] = True
            with self.answer.reads_for_a_file(), self.answer.phases.inside(phases.SAVING):
                return save(*args, **kwargs)

        torch.optim.Optimizer.__init__, torch.nn.Module.train, torch.save = counted, trained, saved

    def is_trained(self, module):
        """True if a module has at least half of the parameters of an optimizer: a part that stays in evaluation mode is not one."""
        own = sum(1 for parameter in module.parameters() if parameter.requires_grad)
        optimizers = (made() for made in self.optimizers)
        counts = [sum(len(group["params"]) for group in made.param_groups) for made in optimizers if made is not None]
        return own > 0 and any(2 * own >= count for count in counts)

    def listen(self):
        """Ends when the launcher or the system asks for it, with an answer."""
        import signal
        import threading

        if threading.current_thread() is not threading.main_thread():
            return
        signal.signal(SETTINGS["signal"], guarded(lambda *_: (self.answer.end("asked"), leave(0))))
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            def terminated(*_):
                guarded(self.answer.end)("terminated")
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)

            signal.signal(signal.SIGTERM, terminated)


def end_workers():
    """Ends the workers of the script's loaders: they would print that their pipes are broken."""
    import signal
    import threading

    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None or threading.current_thread() is not threading.main_thread():
        return
    # PyTorch's loader raises an error when a worker ends.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for child in multiprocessing.active_children():
        if child.daemon:
            child.kill()


def leave(code):
    """Ends the process without running what the script would still do."""
    guarded(end_workers)()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code)


def after_torch(torch):
    answer = Answer(torch)
    ANSWERS_HERE.append(answer)
    Watch(answer).install()
    guarded(without_downloads)(torch)




def after_triton(module):
    from ..values.kernels import after_triton

    after_triton(module)
