"""Growth from step to step, and who holds what grows."""

import collections
import functools
import linecache
import types

import pytest

from _vramlab_rehearsal.boot import growth as module
from _vramlab_rehearsal.boot.growth import Growth, Holders
from _vramlab_rehearsal.boot.holding import is_made_anew, lines_of

KEPT: list = []


@pytest.fixture
def growth(torch):
    return Growth(torch)


def steps(growth, torch, sizes, keep=None):
    """Marks a step after each allocation; with `keep`, the tensors are given to it."""
    for size in sizes:
        address = torch.cuda.memory.allocate(size)
        if keep is None:
            torch.cuda.memory.free(address, size)
        else:
            keep(torch.Tensor(address))
        growth.mark()


def test_a_step_that_repeats_the_last_one_is_flat(growth, torch):
    steps(growth, torch, [512, 512])
    assert not growth.flat, "one step alone repeats nothing"
    steps(growth, torch, [512])
    assert growth.flat and growth.requests() == (1,)
    steps(growth, torch, [1024])
    assert not growth.flat


def test_what_every_third_step_keeps_is_not_flat_though_two_steps_are_alike(growth, torch):
    kept, flat = [], []
    for step in range(15):
        address = torch.cuda.memory.allocate(512)
        torch.cuda.memory.free(address, 512)
        growth.mark()
        flat.append((growth.repeats, growth.flat))
        if step % 3 == 2 and step < 9:
            kept.append(torch.cuda.memory.allocate(512))
    assert any(repeats for repeats, _ in flat[3:9]) and not any(is_flat for _, is_flat in flat[3:15])
    steps(growth, torch, [512] * 4)
    assert growth.flat, "nothing was kept for more than two periods"


class Counters:
    """The allocator's counters, as they are read at the end of each step."""

    def __init__(self, ends):
        """`ends`: of each step, bytes that it requested, and bytes of the blocks that it left."""
        self.ends, self.steps, self.requested = iter(ends), 0, 0

    def device_count(self):
        return 1

    def _cuda_memoryStats(self, _index):
        requested, allocated = next(self.ends)
        self.steps, self.requested = self.steps + 1, self.requested + requested
        said = {name: {"all": dict.fromkeys(("current", "allocated", "freed"), 1)}
                for name in ("segment", "reserved_bytes", "active_bytes", "inactive_split_bytes")}
        of = {"current": 100, "allocated": self.steps, "freed": self.steps}
        said.update(allocation={"all": of}, requested_bytes={"all": dict(of, allocated=self.requested, freed=self.requested)},
                    allocated_bytes={"all": dict(of, current=allocated)})
        return said


@pytest.mark.parametrize(("ends", "flat"), [
    ([(9, 0), (5, 1), (5, 2), (5, 1)], [False, False, False, True]),
    ([(9, 0), (5, 1), (5, 2), (5, 3), (5, 4)], [False] * 5),
    ([(9, 0), (5, 1), (6, 2), (5, 1), (6, 2)], [False] * 5),
], ids=["blocks that come back", "blocks that never do", "other requests between"])
def test_blocks_that_come_back_in_turn_are_flat(ends, flat):
    counters = Counters(ends)
    growth = Growth(types.SimpleNamespace(_C=counters, cuda=counters))
    found = []
    for _ in ends:
        growth.mark()
        found.append(growth.flat)
    assert found == flat


def test_growth_is_more_than_after_an_earlier_step(growth, torch):
    steps(growth, torch, [512] * 5)
    assert not growth.grew(0)
    kept = []
    steps(growth, torch, [512] * 3, kept.append)
    assert growth.grew(0) and not growth.grew(1)


def found(growth, torch):
    growth.find_holders(torch.cuda.memory._snapshot()["device_traces"])
    return growth.report()["holders"]


def test_a_list_that_grows_is_named_with_its_line(growth, torch):
    KEPT.clear()
    steps(growth, torch, [512] * 8, lambda tensor: KEPT.append(tensor))
    [holder] = found(growth, torch)
    assert holder["holder"] == "list KEPT" and holder["length"] == 8 and not holder["cycle"]
    assert holder["fills"], "this file empties it"
    KEPT.clear()


class Trainer:
    def __init__(self):
        self.logs = collections.defaultdict(list)

    def log(self, tensor):
        self.logs["loss"].append(tensor)


def test_lists_in_a_dictionary_grow_and_not_the_dictionary(growth, torch):
    trainer = Trainer()
    steps(growth, torch, [512] * 8, trainer.log)
    [holder] = found(growth, torch)
    assert (holder["holder"], holder["length"], holder["fills"]) == ("list Trainer.logs", 8, False), holder
    line = linecache.getline(__file__, int(holder["where"].rsplit(":", 1)[1]))
    assert "append" in line, line


class History:
    def __init__(self):
        self.all = {}

    def push(self, tensor):
        self.all.setdefault("all", []).append({"weight": tensor})


def test_a_list_in_a_dictionary_grows_whatever_each_of_its_entries_is(growth, torch):
    history = History()
    steps(growth, torch, [512] * 8, history.push)
    [holder] = found(growth, torch)
    assert (holder["holder"], holder["length"], holder["fills"]) == ("list History.all", 8, False), holder


def test_a_deque_in_a_dictionary_grows(growth, torch):
    queues = {"all": collections.deque(), "one": collections.deque()}
    steps(growth, torch, [1024] * 8, lambda tensor: queues["all"].append((tensor,)))
    [holder] = found(growth, torch)
    assert (holder["holder"], holder["length"], holder["fills"]) == ("deque queues", 8, False), holder


def test_a_dictionary_of_short_lists_fills(growth, torch):
    cache = {}
    steps(growth, torch, [512] * 8, lambda tensor: cache.setdefault(len(cache), [None, tensor]))
    [holder] = found(growth, torch)
    assert holder["holder"].startswith("dict cache") and holder["fills"], holder


def test_a_deque_with_a_limit_fills(growth, torch):
    last = collections.deque(maxlen=100)
    steps(growth, torch, [512] * 8, last.append)
    [holder] = found(growth, torch)
    assert holder["holder"] == "deque last" and holder["fills"] and holder["limit"] == 100


def of_a_cache(growth, torch, most):
    """What holds the results of a function that caches at most so many."""

    @functools.lru_cache(maxsize=most)
    def cached(number):
        return torch.Tensor(torch.cuda.memory.allocate(512))

    for number in range(8):
        cached(number)
        growth.mark()
    [holder] = found(growth, torch)
    return holder


def test_a_cache_fills(growth, torch):
    holder = of_a_cache(growth, torch, None)
    assert holder["holder"].endswith("cached") and holder["fills"], holder


def test_a_cache_with_a_limit_says_it(growth, torch):
    holder = of_a_cache(growth, torch, 128)
    assert holder["holder"].startswith("the cache of ") and holder["fills"], holder
    assert (holder["limit"], holder["length"]) == (128, 8)


class Module:
    """Keeps its hooks as PyTorch's modules do."""

    def __init__(self):
        self._parameters, self._forward_hooks = {}, collections.OrderedDict()


def test_what_the_defaults_of_a_hook_hold_is_the_hook_s(growth, torch):
    module = Module()

    def add(tensor):
        def keeps(output, kept=[tensor]):  # noqa: B006
            return kept

        module._forward_hooks[len(module._forward_hooks)] = keeps

    steps(growth, torch, [512] * 8, add)
    [holder] = found(growth, torch)
    assert holder["holder"].startswith("list of hook ") and holder["holder"].endswith("keeps"), holder
    assert "def keeps" in linecache.getline(__file__, int(holder["where"].rsplit(":", 1)[1])) and not holder["fills"]


def test_what_nobody_holds_has_no_holder(growth, torch):
    for _ in range(8):
        torch.cuda.memory.allocate(512)
        growth.mark()
    [holder] = found(growth, torch)
    assert holder["holder"] is None and holder["addresses"]


def test_attributes_are_named_by_their_class(growth, torch):
    class Log:
        def __init__(self):
            self.losses = []

    log = Log()
    steps(growth, torch, [512] * 8, log.losses.append)
    # A variable of a running function leads to the object too; the attribute comes first.
    [holder] = found(growth, torch)
    assert holder["holder"].startswith("list ") and "losses" in holder["holder"], holder


def test_the_search_ends_in_time(growth, torch, monkeypatch):
    monkeypatch.setattr(module, "MAX_SECONDS", 0)
    tensor = torch.Tensor(torch.cuda.memory.allocate(512))
    assert Holders(torch).at[tensor.address] == [tensor]


@pytest.mark.parametrize(
    ("text", "put", "emptied"),
    [
        ("losses = []\nfor x in y:\n    losses.append(x)\n", 3, None),
        ("losses = []\nlosses.append(1)\nlosses.clear()\n", 2, 3),
        ("losses = []\nlosses += [1]\n", 2, None),
        ("losses = defaultdict(list)\nlosses['a'].append(1)\n", 2, None),
        ("losses = defaultdict(list)\nlosses['a'].append(1)\nlosses['a'].clear()\n", 2, 3),
    ],
)
def test_lines_that_put_and_empty(tmp_path, text, put, emptied):
    file = tmp_path / "script.py"
    file.write_text(text)
    told = lines_of(str(file), "losses", False)
    assert (told["put"], told["emptied"]) == (put, emptied)


def test_a_variable_of_the_module_is_not_that_of_a_closure(tmp_path):
    file = tmp_path / "script.py"
    file.write_text("def watch():\n    seen = []\n    def note(x): seen.append(x)\n    return note\nseen = watch()\n")
    assert lines_of(str(file), "seen", False)["emptied"] == 5
    assert lines_of(str(file), "seen", False, True) == {"put": 3, "emptied": None}


@pytest.mark.parametrize(
    ("text", "line", "anew"),
    [("batch = load(n)\n", 1, True), ("total = total + loss\n", 1, False), ("a = b\nb = f(a)\n", 1, False), ("x = (\n", 1, False)],
)
def test_what_is_made_anew_goes_back_to_nothing_of_itself(tmp_path, text, line, anew):
    file = tmp_path / "script.py"
    file.write_text(text)
    name = text.split()[0]
    assert is_made_anew(str(file), name, line) is anew
