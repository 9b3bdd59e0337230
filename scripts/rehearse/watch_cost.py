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

SETTLING = 200


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

    def off(self):
        self.meter._handles.pop().remove()
        self.meter.history.end()

    def on(self):
        self.meter._handles.append(register_optimizer_step_post_hook(self.meter._after_optimizer))
        self.meter.history._record(self.meter.history.has_lines)
        self.meter._last = time.process_time()


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
        first = [one() for _ in range(SETTLING)][1:8]
        own = meter._own
        looks = sum(one() for _ in range(SETTLING))
        looks = (meter._own - own) / looks
        lines = meter.history.has_lines
        found = {True: [], False: []}
        is_on = True
        # on, off, off, on, …
        for turn in range(2 * pairs):
            if is_on != (turn % 4 in (0, 3)):
                is_on = not is_on
                (switch.on if is_on else switch.off)()
            found[is_on].append(one())
    without = statistics.median(found[False])
    low, middle, high = statistics.quantiles([on - off for on, off in zip(found[True], found[False])], n=4)
    # Of a median of so many.
    doubt = 1.25 * (high - low) / 1.35 / pairs**0.5
    made = meter._allocations // meter.steps
    print(f"{which}, torch {torch.__version__}: {pairs} pairs of steps of {1e3 * without:.2f} ms with {made} allocations, {entries} entries")
    print(f"  events and counts: {middle / without:+.2%} ± {doubt / without:.2%}, {1e6 * middle / made:.2f} µs an allocation")
    print(f"  looks, lines, pictures: {looks:.2%}; lines are {'noted' if lines else 'not noted'}; a step of the first eight {statistics.median(first) / without - 1:+.0%}")


main()
