"""What a watch takes of a step: blocks of steps with and without it, in random order, in one process on a simulated card.

    LD_PRELOAD=… python scripts/rehearse/watch_cost.py mlp|gpt2 ROUNDS [ENTRIES]

The environment is that of "By hand" in docs/rehearsal-library.md. Kernels do nothing there: a step takes the host's own time alone, and on a card it is
no shorter. Times are those of the processor, of all threads.
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from vramlab._watching.history import ENTRIES
from vramlab._watching.meter import Meter
from vramlab._watching.tell import Teller

# The watch's own clock is the processor's, too.
time.perf_counter = time.process_time

# Steps before the measurement, and of a block.
STEPS = {"mlp": (300, 64), "gpt2": (100, 16)}


def mlp():
    net = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())]).cuda()
    batch = torch.randn(64, 512, device="cuda")
    return net, lambda: net(batch).square().mean()


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    net = GPT2LMHeadModel(GPT2Config()).cuda()
    tokens = torch.ones(4, 256, dtype=torch.int64, device="cuda")
    return net, lambda: net(tokens, labels=tokens).loss


class Switch:
    """A watch that can be off for some steps."""

    def __init__(self, folder, entries):
        self.meter = Meter(torch, entries=entries)
        self.teller = Teller(self.meter, folder, folder / "out.pickle", pictures=True)
        self.meter.install()
        self.was_on = False

    def off(self):
        self.meter._handles.pop().remove()
        self.was_on = self.meter.history.is_on
        self.meter.history._switch(False)
        self.off_since, self.off_made = time.process_time(), self.made()

    def on(self):
        self.meter._handles.append(register_optimizer_step_post_hook(self.meter._after_optimizer))
        self.meter.history._switch(self.was_on)
        # For it there were no steps meanwhile.
        away = time.process_time() - self.off_since
        self.meter._last += away
        self.meter._since += away
        self.meter._allocations += self.made() - self.off_made

    def made(self):
        return torch.cuda.memory_stats_as_nested_dict()["allocation"]["all"]["allocated"]


def trimmed(values):
    """The mean without a twentieth at each end, and its standard error."""
    values = sorted(values)
    cut = len(values) // 20
    values = values[cut : len(values) - cut]
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5


def main():
    which, rounds = sys.argv[1], int(sys.argv[2])
    entries = int(sys.argv[3]) if len(sys.argv) > 3 else ENTRIES
    net, loss = {"mlp": mlp, "gpt2": gpt2}[which]()
    settling, length = STEPS[which]
    optimizer = torch.optim.AdamW(net.parameters())

    def block(steps):
        """The processor's seconds of a step."""
        start = time.process_time()
        for _ in range(steps):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        return (time.process_time() - start) / steps

    with tempfile.TemporaryDirectory() as name:
        switch = Switch(Path(name), entries)
        block(settling)
        switch.off()
        # Each round has a block of each kind, in random order. The second without a watch shows what the method cannot tell apart.
        found = {"with": [], "without": [], "without again": []}
        kinds = list(found)
        for _ in range(rounds):
            random.shuffle(kinds)
            for kind in kinds:
                if kind == "with":
                    switch.on()
                else:
                    switch.made()
                block(3)
                found[kind].append(block(length))
                if kind == "with":
                    switch.off()
                else:
                    switch.made()
        meter = switch.meter
        step = 1e3 * statistics.median(found["without"])
        print(f"{which}, torch {torch.__version__}: {rounds} rounds of {length} steps of {step:.2f} ms, {entries} entries")
        for kind in ("with", "without again"):
            share, doubt = trimmed([one / other - 1 for one, other in zip(found[kind], found["without"])])
            print(f"  {kind}: {share:+.2%} ± {doubt:.2%}")
        print(f"  by its own account {meter.status()['own_share']:.2%}, {meter.history.recorded} of {meter.steps} steps recorded")


main()
