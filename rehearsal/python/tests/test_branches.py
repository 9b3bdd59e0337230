"""Branches that decide only what is saved, printed or remembered as a number."""

import json
import logging
import os
import shutil
import sys

import pytest

from _vramlab_rehearsal.values.branches import decides_nothing

LOG = logging.getLogger(__name__)


class Tensor:
    """Stands in for a tensor of so many elements."""

    __module__ = "torch"

    def __init__(self, elements=1):
        self.elements, self.found = elements, None

    def numel(self):
        return self.elements

    def look(self):
        self.found = decides_nothing(sys._getframe(2))
        return False

    def __bool__(self):
        return self.look()

    def __gt__(self, _other):
        return self.look()

    __lt__ = __gt__

    def item(self):
        return 0.0


class Model:
    def state_dict(self):
        return {}

    def widen(self):
        self.width = 1024

    def train(self):
        self.work = [Tensor()] * 2


def copied(path):
    if os.path.exists(path):
        shutil.copyfile(path, path + ".best")


def saves_with(x, model, best, large):
    if x > best:
        path = os.path.join("out", "best.pt")
        LOG.info("new best %s", x.item())
        print(f"saved {path} at {x:.2f}" if False else "saved")
        with open(path, "w") as file:
            json.dump({"model": model.state_dict(), "best": best}, file)
        best = x


def calls_a_function_that_copies(x, model, best, large):
    if x > best:
        copied("model.pt")


def takes_the_larger(x, model, best, large):
    highest = max(x, best)
    return highest


def goes_on_with_the_loop(x, model, best, large):
    for _ in range(1):
        if x > best:
            best = x
            continue
        print("no better")


def counts_patience(x, model, best, large):
    patience = 0
    if x > best:
        best, patience = x, 0
    else:
        patience += 1


def logs_one_of_two(x, model, best, large):
    metrics = {"accuracy": []}
    metrics["accuracy"].append(x.item() if x > best else 0.0)


def logs_what_it_remembers(x, model, best, large):
    figures = {}
    if x > best:
        figures["best"] = x.item()
    LOG.info("figures", large.numel(), {**figures})


def ends_the_training(x, model, best, large):
    worse = 0
    for _ in range(1):
        if x > best:
            worse += 1
        if worse > 3:
            break


def sets_what_becomes_a_size(x, model, best, large):
    length = 512
    if x > best:
        length = 1024
    return Tensor(length)


def sets_what_decides_on_work(x, model, best, large):
    is_late = False
    if x > best:
        is_late = True
    if is_late:
        model.train()


def counts_what_becomes_a_size(x, model, best, large):
    sizes = []
    if x > best:
        sizes.append(1)
    return Tensor(len(sizes))


def calls_a_function_that_sets_an_attribute(x, model, best, large):
    if x > best:
        model.widen()


def keeps_a_large_tensor(x, model, best, large):
    if x > best:
        best = large


def keeps_it_in_a_list(x, model, best, large):
    kept = []
    if x > best:
        kept.append(large)


def trains_more(x, model, best, large):
    if x > best:
        model.step()


def stops(x, model, best, large):
    for _ in range(2):
        if x > best:
            print("stop")
            break


def leaves_out_work(x, model, best, large):
    for _ in range(1):
        if x > best:
            continue
        model.train()


def repeats(x, model, best, large):
    while x > best:
        print("again")


def chooses_a_size(x, model, best, large):
    return 8 if x > best else 16


def works_with_it(x, model, best, large):
    if x > best:
        best = large * 2


FOR_A_LOG = [
    saves_with,
    calls_a_function_that_copies,
    goes_on_with_the_loop,
    counts_patience,
    logs_one_of_two,
    logs_what_it_remembers,
    ends_the_training,
]
DECISIVE = [
    takes_the_larger,
    sets_what_becomes_a_size,
    counts_what_becomes_a_size,
    calls_a_function_that_sets_an_attribute,
    sets_what_decides_on_work,
    keeps_a_large_tensor,
    keeps_it_in_a_list,
    trains_more,
    stops,
    leaves_out_work,
    repeats,
    chooses_a_size,
    works_with_it,
]


@pytest.mark.parametrize("script", FOR_A_LOG + DECISIVE)
def test_what_a_size_may_depend_on(script):
    x = Tensor()
    script(x, Model(), 0.5, Tensor(1 << 20))
    assert x.found is (script in FOR_A_LOG)
