"""Kernels of Triton write only to what they are given."""

import types

import fake_tensors as fake
import pytest

from _vramlab_rehearsal.values import kernels
from _vramlab_rehearsal.values import known as known_module
from _vramlab_rehearsal.values.known import AS_BEFORE
from _vramlab_rehearsal.values.values import Values


class Kernel:
    """Stands in for Triton's `JITFunction`."""

    values: Values

    def run(self, *_args, **_words):
        self.values.writes.value += 1


@pytest.fixture
def values(monkeypatch):
    fake.counter(monkeypatch, known_module)
    made = Values(fake.torch(), fake.Library())
    made.reads.log = None
    made.library.ranges = None
    monkeypatch.setattr(kernels, "LAYER", [made])
    return made


@pytest.fixture
def run(values):
    kind = type("JITFunction", (Kernel,), {"run": Kernel.run, "values": values})
    kernels.after_triton(types.SimpleNamespace(__name__="triton.runtime.jit", JITFunction=kind))
    return kind().run


def known(values, *numbers):
    tensor = fake.Tensor([0] * len(numbers), "int64", "cuda")
    values.register(tensor).write(list(numbers))
    return tensor


def test_only_what_a_kernel_is_given_is_forgotten(values, run):
    mask, out, described = known(values, 1, 1), known(values, 0, 0), known(values, 3)
    run(out, 2, types.SimpleNamespace(base=described, block_shape=[1]), grid=(1,), BLOCK=128)
    assert [values.find(tensor) is None for tensor in (mask, out, described)] == [False, True, True]
    assert values.find(mask).doubtful == ""


@pytest.mark.parametrize("argument", ["an address", "a table of addresses", "an object of another library"])
def test_after_a_kernel_that_may_have_addresses_all_is_doubtful(values, run, argument):
    mask = known(values, 1, 1)
    arguments = {
        "an address": 1 << 40,
        "a table of addresses": known(values, 1 << 40, 1 << 41),
        "an object of another library": types.SimpleNamespace(data_ptr=lambda: 1 << 40),
    }
    run(arguments[argument], grid=(1,))
    assert values.find(mask).doubtful == AS_BEFORE
