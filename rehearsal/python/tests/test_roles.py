"""Purposes of addresses."""

import types

import pytest

from _vramlab_rehearsal.boot import roles as module
from _vramlab_rehearsal.boot.roles import Roles, parts_of


@pytest.fixture
def roles(torch):
    torch.nn.Parameter = type("Parameter", (torch.Tensor,), {})
    return Roles(torch)


def optimizer_of(*parameters, **state):
    groups = [{"params": list(parameters)}]
    return types.SimpleNamespace(param_groups=groups, state={parameters[0]: state} if state else {})


def test_an_optimizers_tensors_are_told_by_purpose(roles, torch):
    parameter, moment = torch.nn.Parameter(10), torch.Tensor(30)
    parameter.grad = torch.Tensor(20)
    roles.hold(optimizer_of(parameter, exp_avg=moment, step=1))
    [held] = roles.held
    assert (held["parameter"], held["gradient"], held["optimizer"]) == ([10], [20], [30])


def test_modules_give_buffers_and_frozen_weights(roles, torch):
    frozen, buffer = torch.nn.Parameter(40), torch.Tensor(50)
    module = torch.nn.Module()
    module._parameters, module._buffers = {"weight": frozen, "bias": None}, {"mean": buffer}
    roles.hold(None)
    assert 40 in roles.held[0]["parameter"] and roles.held[0]["buffer"] == [50]


def test_the_first_and_the_last_steps_are_kept(roles, torch):
    parameters = [torch.nn.Parameter(number) for number in range(20)]
    for parameter in parameters:
        roles.hold(optimizer_of(parameter))
    kept = [held["parameter"][0] for held in roles.held]
    assert kept == [0, 1, 2, 3, 16, 17, 18, 19]


def test_tensors_without_memory_are_left_out(roles, torch):
    class Bare(torch.Tensor):  # type: ignore[name-defined]
        def untyped_storage(self):
            raise NotImplementedError

    parameter = torch.Tensor(1)
    roles.hold(optimizer_of(Bare(), parameter))
    assert roles.held[0]["parameter"] == [1]


def test_parts_of_wrapped_tensors(torch):
    inner, scale, state = torch.Tensor(1), torch.Tensor(2), torch.Tensor(3)
    local = torch.Tensor()
    local._local_tensor = inner
    assert list(parts_of(torch, local)) == [inner]
    wrapped = torch.Tensor()
    wrapped.data, wrapped.scale = inner, scale
    wrapped.__tensor_flatten__ = lambda: (["data", "scale"], None)
    assert list(parts_of(torch, wrapped)) == [inner, scale]
    quantized = torch.Tensor(4)
    quantized.quant_state = types.SimpleNamespace(absmax=state, state2=None, blocksize=64)
    assert list(parts_of(torch, quantized)) == [quantized, state]
    assert list(parts_of(torch, None)) == []


def test_backward_passes_are_timed_once_each(roles, torch):
    def run(nested):
        return torch.autograd._engine_run_backward(False) if nested else 7

    torch.autograd = types.SimpleNamespace(_engine_run_backward=run)
    roles.install()
    assert torch.autograd._engine_run_backward(True) == 7
    [(start, end)] = roles.backward
    assert start <= end and roles.depth == 0


def test_batches_come_from_the_host_and_moved_modules_do_not(roles, torch):
    batch, on_card = torch.Tensor(), torch.Tensor(60)
    batch.is_cuda = False
    roles.moved(batch, on_card)
    roles.moved(on_card, on_card)

    def _apply():
        roles.moved(batch, torch.Tensor(70))

    code = _apply.__code__.replace(co_filename="torch/nn/modules/module.py")
    types.FunctionType(code, globals(), closure=_apply.__closure__)()
    assert [address for address, _ in roles.inputs] == [60]


def test_limits_are_kept(roles, monkeypatch, torch):
    monkeypatch.setattr(module, "MAX_ADDRESSES", 2)
    roles.hold(optimizer_of(*(torch.Tensor(number) for number in range(1, 9))))
    assert roles.held[0]["parameter"] == [1, 2]
