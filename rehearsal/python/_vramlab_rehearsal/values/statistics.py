"""Running statistics, which norms write although no version counter says so. Written for `values.py`."""

import types

# Norms, with the name of the question whether they take the statistics of the batch, and what they do if nobody says.
NORMS = {"batch_norm": ("training", False), "instance_norm": ("use_input_stats", True)}


def written_statistics(function, name, args, kwargs):
    """Returns the running statistics that an operator writes."""
    if name not in NORMS:
        return ()
    question, usual = NORMS[name]
    if not kwargs.get(question, args[5] if len(args) > 5 else usual):
        return ()
    # After the input `torch.nn.functional` has them first, PyTorch's own operator weight and bias.
    first = 1 if type(function) is types.FunctionType else 3
    return (*args[first : first + 2], kwargs.get("running_mean"), kwargs.get("running_var"))
