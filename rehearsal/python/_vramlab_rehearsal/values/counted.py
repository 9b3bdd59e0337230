"""Numbers that operators read from the card to find the sizes of their results. Written for `values.py`."""

from .operators import COUNTED


def queue_sizes(values, function, name, args, kwargs, twins):
    """Queues the numbers that an operator reads from the card to find the size of its result."""
    if name not in COUNTED:
        return
    torch = values.torch
    try:
        with values.one_thread, torch._C.DisableTorchFunction(), torch.no_grad():
            numbers = [int(number) for number in sizes(values, function, name, args, kwargs, twins)]
    except Exception:  # As in `compute`.
        return
    for number in numbers:
        values.doing.now.told = True
        values.library.vramlab_rehearsal_queue(number)


def sizes(values, function, name, args, kwargs, twins):
    known = [values.view(t, twins[id(t)]) for t in values.tensors([args, *kwargs.values()], []) if id(t) in twins]
    is_first_known = bool(args) and id(args[0]) in twins
    if name in ("unique", "_unique2", "unique_consecutive", "unique_dim") and is_first_known:
        tensor_of = values.twins_of(twins)
        result = function(*values.replaced(args, tensor_of), **values.replaced(kwargs, tensor_of))
        result, dim = result[0] if isinstance(result, tuple) else result, kwargs.get("dim")
        return [result.numel() if dim is None else result.shape[dim]]
    if name == "bincount" and is_first_known and known[0].numel():
        return [known[0].min(), known[0].max()]
    if name == "one_hot" and is_first_known and known[0].numel():
        return [known[0].max()]
    if name == "repeat_interleave":
        # The last tensor says how often each element is repeated. The operator then asks whether one of these
        # numbers is negative.
        repeats = values.tensors([args, *kwargs.values()], [])[-1]
        if id(repeats) in twins and repeats.numel():
            return [known[-1].sum(), bool((known[-1] >= 0).all())]
    return []
