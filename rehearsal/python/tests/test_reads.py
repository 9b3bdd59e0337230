"""Reads of unknown contents, by place."""

import fake_tensors as fake
import pytest

from _vramlab_rehearsal.values import reads as module
from _vramlab_rehearsal.values.reads import Reads


@pytest.fixture
def reads():
    made = Reads(fake.torch())
    made.log = None
    return made


def test_a_place_is_counted_once(reads):
    for _ in range(3):
        reads.tell("unknown_read", "item", "number", bytes=8)
    [place] = reads.places.values()
    assert (place["count"], place["bytes"]) == (3, 8)
    assert place["where"].startswith(f"{__file__}:")


def test_places_beyond_the_limit_are_counted_together(reads, monkeypatch):
    monkeypatch.setattr(module, "MAX_PLACES", 1)
    reads.tell("unknown_read", "item", "number")
    reads.tell("unknown_read", "tolist", "number")
    reads.tell("unknown_read", "tolist", "number")
    assert (len(reads.places), reads.beyond) == (1, 2)


@pytest.mark.parametrize(
    ("operator", "size", "kind"),
    [("item", 8, "number"), ("tolist", 800, "contents"), ("__bool__", 1, "branch"), ("nonzero", 8, "size"), ("", 8, "outside"), ("add", 8, "inside")],
)
def test_kinds_of_reads(reads, operator, size, kind):
    reads.doing.now.operator = operator
    reads.on_read(0, 1000, size)
    [place] = reads.places.values()
    assert (place["kind"], place["operator"]) == (kind, operator or "none")


def test_what_a_library_reads_for_a_log_is_no_content(reads):
    reads.doing.now.operator = "numpy"
    library = {}
    exec(compile("def write(read, *words): read(*words)", "/x/site-packages/torchvision/utils.py", "exec"), library)
    library["write"](reads.on_read, 0, 1000, 800)
    # By the script itself: what it does with the numbers is not known.
    reads.on_read(0, 1000, 800)
    assert [place["kind"] for place in reads.places.values()] == ["log", "contents"]


def test_quiet_reads_are_only_noted(reads):
    reads.doing.now.quiet = True
    reads.on_read(0, 1000, 8)
    assert reads.doing.now.missed == 8 and not reads.places


def test_copies_on_the_host_are_told_when_they_are_read(reads):
    tensor = fake.Tensor([0] * 10)
    reads.doing.now.operator = "cpu"
    reads.on_read(0, tensor.data_ptr(), 80)
    assert not reads.places, "nobody has read it"
    assert reads.on_host("add", [tensor], (tensor,)), "a result is not known either"
    assert reads.on_host("__repr__", [tensor], (tensor,)) is None
    assert not reads.places
    assert reads.on_host("tolist", [tensor], (tensor,)) is None
    [place] = reads.places.values()
    assert (place["operator"], place["kind"], place["bytes"]) == ("tolist", "contents", 80)
    assert not reads.carried


def test_a_copy_is_gone_once_its_memory_holds_something_else(reads):
    tensor, other = fake.Tensor([0] * 10), fake.Tensor([0] * 10)
    for one in (tensor, other):
        reads.carry(one.data_ptr(), 80, "cpu", ("?", "?"))
    reads.overwritten(tensor.data_ptr() + 72, 800)
    assert reads.on_host("tolist", [tensor], (tensor,)) is None and not reads.places
    assert list(reads.carried) == [other.data_ptr()]


def test_few_copies_are_remembered(reads, monkeypatch):
    monkeypatch.setattr(module, "MAX_CARRIED", 2)
    for address in range(3):
        reads.carry(address, 8, "cpu", ("?", "?"))
    assert list(reads.carried) == [1, 2]


def test_a_thread_has_a_state_of_its_own(reads):
    import threading

    reads.doing.now.busy, seen = True, []
    thread = threading.Thread(target=lambda: seen.append(reads.doing.now.busy))
    thread.start()
    thread.join()
    assert seen == [False]


def test_the_log_has_a_line_for_each_place(reads, tmp_path):
    reads.log = str(tmp_path / "log")
    reads.tell("assumed", "nonzero", "values")
    reads.tell("assumed", "nonzero", "values")
    assert len((tmp_path / "log").read_text().splitlines()) == 2, "two lines of this file"


def test_an_element_of_a_copy_decides_no_size(reads):
    tensor, index = fake.Tensor([0] * 10, dtype="torch.bool"), fake.Tensor([0] * 10, dtype="torch.bool")
    for one in (tensor, index):
        reads.carry(one.data_ptr(), 80, "cpu", ("?", "?"))
    assert reads.on_host("__getitem__", [tensor], (tensor, 3)) and not reads.places, "an element of it is not known either"
    reads.on_host("__getitem__", [index], (object(), index))
    assert [place["kind"] for place in reads.places.values()] == ["size"]


def test_a_mask_of_a_copy_decides_the_size_of_what_it_takes_of_a_copy(reads):
    tensor, mask = fake.Tensor([0] * 10), fake.Tensor([0] * 10, dtype="torch.bool")
    for one in (tensor, mask):
        reads.carry(one.data_ptr(), 80, "cpu", ("?", "?"))
    assert reads.on_host("__getitem__", [tensor, mask], (tensor, mask)), "what is taken is not known either"
    assert [place["kind"] for place in reads.places.values()] == ["size"]
