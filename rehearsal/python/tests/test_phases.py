"""The phases of a run, each with its own peak."""

import pytest

from _vramlab_rehearsal.boot.answer import Answer
from _vramlab_rehearsal.boot.watch import Watch

KIB = 1024


@pytest.fixture
def run(settings, torch):
    """A program under the watch of its phases, which has loaded a KiB."""
    settings["phases"] = True
    made = Watch(Answer(torch))
    made.keep_resets()
    torch.cuda.memory.allocate(KIB)
    made.mark_uses()
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from _vramlab_rehearsal.boot import phases

    register_optimizer_step_post_hook(phases.watch(made.answer.phases, made.is_trained))
    yield made
    settings["phases"] = False


def passing(torch, size):
    """Memory that is allocated and freed."""
    torch.cuda.memory.free(torch.cuda.memory.allocate(size), size)


def peaks(run):
    return {phase["name"]: phase["peak_allocated"] // KIB for phase in run.answer.phases.report()}


def test_each_phase_has_its_own_peak(run, torch, tmp_path):
    network, optimizer = torch.nn.Module(), torch.optim.Optimizer([torch.Tensor()])
    passing(torch, 4 * KIB)
    optimizer.step()
    network.eval()
    passing(torch, 8 * KIB)
    network.train()
    passing(torch, 2 * KIB)
    torch.save({}, tmp_path / "saved")
    assert peaks(run) == {"load": 1, "train": 5, "evaluate": 9, "save": 1}
    assert run.answer.cards()[0]["peak_allocated"] == 9 * KIB, "the whole run has the peak of its phases"


def test_what_puts_states_back_is_another_phase(run, torch, tmp_path):
    torch.save({}, tmp_path / "saved")
    torch.load(tmp_path / "saved")
    optimizer = torch.optim.Optimizer([torch.Tensor()])
    torch.load(tmp_path / "saved")
    optimizer.load_state_dict({"state": {}, "size": 6 * KIB})
    optimizer.step()
    torch.load(tmp_path / "saved")
    assert peaks(run) == {"load": 1, "save": 1, "train": 7, "resume": 7}
    resumed = next(phase for phase in run.answer.phases.report() if phase["name"] == "resume")
    assert (resumed["since"], resumed["until"]) == (1, 2), "the second allocation reached the peak"


def test_a_part_that_stays_in_evaluation_mode_is_no_evaluation(run, torch):
    whole = torch.nn.Module()
    whole.parameters = lambda: [torch.Tensor() for _ in range(8)]
    optimizer = torch.optim.Optimizer(whole.parameters())
    torch.nn.Module().eval()
    passing(torch, 4 * KIB)
    assert peaks(run) == {"load": 1, "train": 5}
    whole.eval()
    assert set(peaks(run)) == {"load", "train", "evaluate"} and optimizer


def test_peaks_that_the_script_resets_stay_with_their_phase(run, torch):
    passing(torch, 4 * KIB)
    torch._C._cuda_resetPeakMemoryStats(0)
    passing(torch, 2 * KIB)
    assert peaks(run) == {"load": 5}


def test_without_a_wish_nothing_is_reset(run, settings, torch):
    settings["phases"] = False
    passing(torch, 4 * KIB)
    torch.optim.Optimizer([torch.Tensor()])
    assert run.answer.phases.report() == []
    assert torch.cuda.memory.PEAK == 5 * KIB
