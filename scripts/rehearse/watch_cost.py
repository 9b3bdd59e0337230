"""What a watch takes of a step: steps with and without it, in turn, in one process on a simulated card.

    LD_PRELOAD=… python scripts/rehearse/watch_cost.py mlp|gpt2 PAIRS [ENTRIES]

The environment is that of "By hand" in docs/rehearsal-library.md. Kernels do nothing there: a step takes the host's own time alone, and on a card it is
no shorter. Times are those of the processor, of all threads.
"""

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

SETTLING = 50


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


def mean(values):
    """The mean and its standard error."""
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5


def main():
    which, pairs = sys.argv[1], int(sys.argv[2])
    entries = int(sys.argv[3]) if len(sys.argv) > 3 else ENTRIES
    net, loss = {"mlp": mlp, "gpt2": gpt2}[which]()
    optimizer = torch.optim.AdamW(net.parameters())

    def one():
        """The processor's seconds of a step."""
        start = time.process_time()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        return time.process_time() - start

    with tempfile.TemporaryDirectory() as name:
        switch = Switch(Path(name), entries)
        meter = switch.meter
        first = [one() for _ in range(SETTLING)]
        own, since, away = meter._own, time.process_time(), meter._since
        # Of steps with the watch, those that were recorded, and others; each with the step without the watch beside it.
        found = {True: [], False: []}
        is_on = True
        # on, off, off, on, …
        for pair in range(pairs):
            both = {}
            for on in (True, False) if pair % 2 == 0 else (False, True):
                if is_on != on:
                    is_on = on
                    (switch.on if on else switch.off)()
                recorded = meter.history.is_on
                both[on] = (one(), recorded)
            found[both[True][1]].append((both[True][0], both[False][0]))
    every = [pair for pairs in found.values() for pair in pairs]
    without = statistics.median(off for _, off in every)
    made = switch.made() // (SETTLING + 2 * pairs)
    print(
        f"{which}, torch {torch.__version__}: {len(every)} pairs of steps of {1e3 * without:.2f} ms with {made} allocations, {entries} entries"
    )
    for recorded, pairs in found.items():
        if len(pairs) > 1:
            low, middle, high = statistics.quantiles([on - off for on, off in pairs], n=4)
            # Of a median of so many.
            doubt = 1.25 * (high - low) / 1.35 / len(pairs) ** 0.5
            least = min(on for on, _ in pairs) / min(off for _, off in every) - 1
            words = "recorded" if recorded else "not recorded"
            print(f"  {len(pairs)} {words}: {middle / without:+.2%} ± {doubt / without:.2%} in the median, {least:+.2%} the least")
    # Without the first steps and the first picture.
    share = (meter._own - own) / (time.process_time() - since - (meter._since - away))
    middle, doubt = mean([on - off for on, off in every])
    print(f"  all: {middle / without:+.2%} ± {doubt / without:.2%} in the mean; by its own account {share:.2%}")
    print(f"  the first three {statistics.median(first[1:3]) / without - 1:+.0%}, {meter.history.recorded} of {meter.steps} recorded")


main()
