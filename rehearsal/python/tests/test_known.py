"""Contents of small tensors that are known, and what ends that."""

import fake_tensors as fake
import pytest

from _vramlab_rehearsal.values import known as module
from _vramlab_rehearsal.values.known import AS_BEFORE, Known, doubt


@pytest.fixture
def known(monkeypatch):
    fake.counter(monkeypatch, module)
    return Known(fake.torch(), fake.Library())


def on_card(*numbers):
    return fake.Tensor(numbers, device="cuda")


def test_contents_are_known_until_somebody_writes(known):
    tensor = on_card(0, 0)
    known.register(tensor).write([3, 4])
    assert known.view(tensor, known.find(tensor)).tolist() == [3, 4]
    tensor.write([5, 6])
    assert known.find(tensor) is None, "the version counter says so"


def test_contents_end_with_the_storage(known):
    tensor = on_card(1)
    known.register(tensor)
    other = on_card(1)
    other.held._cdata = tensor.held._cdata
    assert known.find(other) is None, "another storage has the same number"


def test_a_twin_that_was_given_is_taken_as_it_is(known):
    tensor, contents = on_card(0), fake.Tensor([9])
    twin = known.register(tensor, contents)
    assert known.find(tensor) is twin and known.view(tensor, twin) is contents


def test_copies_end_only_what_they_wrote(known):
    one, other = on_card(1), on_card(2)
    known.register(one), known.register(other)
    known.library.ranges = [(one.data_ptr(), 8)]
    known.forget_written()
    assert known.find(one) is None and known.find(other) is not None


def test_a_write_into_the_middle_of_a_large_tensor_ends_it(known):
    small, large = on_card(1), on_card(1)
    small.held.address, large.held.address, large.held.bytes = 5 << module.PAGE, 9 << module.PAGE, 4 << module.PAGE
    known.register(small), known.register(large)
    known.library.ranges = [((11 << module.PAGE) + 8, 8)]
    known.forget_written()
    assert known.find(large) is None and known.find(small) is not None
    known.register(large)
    known.sweep()
    known.library.ranges = [(0, 1 << 60)]
    known.forget_written()
    assert not known.twins


def test_after_a_graph_contents_are_doubtful(known):
    tensor = on_card(1)
    known.register(tensor)
    known.library.ranges = None
    known.forget_written()
    assert known.find(tensor).doubtful == AS_BEFORE
    assert doubt({0: known.find(tensor)}) == AS_BEFORE and doubt({}) == ""


def test_expired_storages_are_swept(known):
    for number in range(300):
        tensor = on_card(number)
        known.register(tensor)
        tensor.held.freed = True
    assert len(known.twins) < 300


def test_what_is_small(known, monkeypatch):
    monkeypatch.setattr(module, "MAX_ELEMENTS", 4)
    numbers = fake.Tensor([1, 2, 3])
    assert known.is_small(numbers)
    numbers.dtype = "float32"
    assert known.is_small(numbers)
    assert not known.is_small(fake.Tensor(range(5)))
    assert not known.is_small(fake.Tensor([1], dtype="complex64"))


def test_anchors_of_a_detector_are_small(known):
    assert known.is_small(fake.Tensor(range(2 * 163_206), dtype="float32"))


def test_contents_have_room_until_the_host_is_full(known, monkeypatch):
    monkeypatch.setattr(module, "ALWAYS_KEPT", 80)
    monkeypatch.setattr(module, "MAX_KEPT", 2000)
    kept = [on_card(*[0] * 100) for _ in range(2)]
    for tensor in kept:
        assert known.has_room(tensor)
        known.register(tensor)
    assert not known.has_room(on_card(*[0] * 100)) and known.has_room(on_card(*[0] * 10))
    kept[0].held.freed = True
    found = [known.has_room(on_card(*[0] * 100)) for _ in range(module.SWEEP_EVERY)]
    assert found == [False] * (module.SWEEP_EVERY - 1) + [True], "the first is gone, and somebody looks in time"


def large(known, monkeypatch, size=100):
    monkeypatch.setattr(module, "MAX_ELEMENTS", 4)
    host, card = fake.Tensor(range(size)), on_card(*[0] * size)
    known.keep_large(host, card)
    return host, card


def test_large_contents_stay_with_the_hosts_tensor(known, monkeypatch):
    host, card = large(known, monkeypatch)
    twin = known.find(card)
    assert twin.source == (host, 0)
    host.write(range(1, 101))
    assert known.find(card) is None, "the host's tensor has changed"


def test_the_largest_goes_if_there_are_too_many(known, monkeypatch):
    monkeypatch.setattr(module, "MAX_LARGE", 1000)
    _, first = large(known, monkeypatch, 100)
    _, second = large(known, monkeypatch, 50)
    assert known.find(first) is None and known.find(second) is not None


def test_a_promise_is_asked_once(known):
    tensor, asked = on_card(0), []

    def promised(number, _address, bytes):
        asked.append((number, bytes))
        return 2

    known.library.vramlab_rehearsal_promised = promised
    known.register(tensor)
    known.twins[tensor.held._cdata].promise = 7
    assert known.find(tensor).doubtful == module.AS_THIS_RANK
    assert known.find(tensor) is not None and asked == [(7, 8)]


def test_the_threads_are_given_back(known):
    with known.one_thread:
        with known.one_thread:
            assert known.torch.get_num_threads() == 1
        assert known.torch.get_num_threads() == 1
    assert known.torch.get_num_threads() == 4
