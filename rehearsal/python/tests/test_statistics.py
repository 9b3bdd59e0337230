"""Running statistics that norms write."""

from _vramlab_rehearsal.values.statistics import written_statistics


def functional():
    """Stands for a function of `torch.nn.functional`."""


class Operator:
    """Stands for an operator of PyTorch's own."""


def test_statistics_are_written_in_training():
    args = ("input", "mean", "variance", "weight", "bias", True, 0.1, 1e-5)
    assert written_statistics(functional, "batch_norm", args, {})[:2] == ("mean", "variance")
    assert written_statistics(functional, "batch_norm", ("input",), {"running_mean": "mean", "running_var": "variance", "training": True}) == ("mean", "variance")
    own = ("input", "weight", "bias", "mean", "variance", True, 0.1, 1e-5, True)
    assert written_statistics(Operator(), "batch_norm", own, {})[:2] == ("mean", "variance")
    assert written_statistics(functional, "instance_norm", ("input", "mean", "variance"), {})[:2] == ("mean", "variance")


def test_they_are_not_in_evaluation_or_by_other_operators():
    assert written_statistics(functional, "batch_norm", ("input", "mean", "variance", "weight", "bias", False), {}) == ()
    assert written_statistics(functional, "batch_norm", ("input", "mean", "variance"), {}) == ()
    assert written_statistics(functional, "layer_norm", ("input", "mean", "variance", None, None, True), {}) == ()
