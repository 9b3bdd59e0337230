"""Networks that a function of the user's makes: `file.py:make_model`."""

import importlib.util
import inspect
import os
import sys

from . import inputs, library
from .plan import Plan, Refused, precision

# Arguments of a forward pass that hold numbers of tokens.
TOKENS = ("input_ids", "idx", "ids", "tokens", "token_ids")


def plan_of(source, options):
    """Returns the plan, and the network. The function may return the network, or the network with a dictionary or a tuple of example inputs,
    of the batch that it likes."""
    import torch

    from . import weightless

    folder, module_name = os.path.split(source.path)
    sys.path.insert(0, folder)
    name = module_name[:-3]
    made, how = weightless.build(lambda: function_of(source)())
    given = None
    if isinstance(made, tuple) and len(made) == 2:
        made, given = made
    if not isinstance(made, torch.nn.Module):
        raise Refused("%s returns %s, which is no torch.nn.Module" % (source.name, type(made).__name__))
    plan = Plan(source.name, "torch " + torch.__version__, type(made).__name__)
    first = next(iter(made.parameters()), None)
    plan.dtype = str(first.dtype).replace("torch.", "") if first is not None else "float32"
    plan.dtype_from = "the function"
    plan.imports = ["import sys", "sys.path.insert(0, %r)" % folder, "from %s import %s" % (name, source.member)]
    whole = "made[0] if isinstance(made, tuple) else made"
    plan.build = ["made = %s()" % source.member, "return " + whole]
    library.parameters_of(plan, made, how)
    if options["precision"]:
        plan.dtype, plan.dtype_from = precision(options["precision"])[0], "--precision"
        plan.build[-1] = "return (%s).to(torch.%s)" % (whole, plan.dtype)
        made = made.to(getattr(torch, plan.dtype))
    fill(plan, made, given, options, torch)
    library.as_the_network(plan)
    return plan, made


def function_of(source):
    spec = importlib.util.spec_from_file_location(os.path.basename(source.path)[:-3], source.path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, source.member, None)
    if not callable(function):
        raise Refused("%s has no function %s" % (source.path, source.member))
    return function


def fill(plan, model, given, options, torch):
    config = getattr(model, "config", None)
    if given is None and config is not None and hasattr(config, "get_text_config"):
        facts = inputs.Facts(type(model), config)
        inputs.fill(plan, facts, options, lambda made: library.tokens_of_pictures(torch, model, made, options, facts))
        return
    if given is None:
        by_name(plan, model, config, options)
    else:
        from_examples(plan, given, torch)
    plan.forward = [
        "outputs = model(**batch)" if isinstance(given, dict) or given is None else "outputs = model(*batch.values())",
        "parts = list(outputs.values()) if isinstance(outputs, dict) else outputs if isinstance(outputs, (list, tuple)) else [outputs]",
        "parts = [part for part in parts if isinstance(part, torch.Tensor) and part.requires_grad]",
        "loss = next((part for part in parts if part.dim() == 0), None)",
        "loss = parts[0].float().mean() if loss is None else loss",
    ]
    plan.loss = "the network's own scalar, else the mean of its first output"


def from_examples(plan, given, torch):
    """Inputs like those of the function, with the requested batch in place of its own."""
    named = given.items() if isinstance(given, dict) else [("input_%d" % i, one) for i, one in enumerate(given if isinstance(given, (list, tuple)) else [given])]
    for name, one in named:
        if not isinstance(one, torch.Tensor):
            plan.add(name, repr(one), "", type(one).__name__, nested=True)
            continue
        sizes = ", ".join(["BATCH"] + [str(size) for size in one.shape[1:]]) if one.dim() else ""
        kind = str(one.dtype).replace("torch.", "")
        value = "torch.rand(%s).to(torch.%s)" if one.is_floating_point() else "torch.zeros((%s,), dtype=torch.%s)"
        plan.add(name, value % (sizes, kind) if sizes else repr(one.item()), "batch x " + " x ".join(map(str, one.shape[1:])), kind, nested=not sizes)
    plan.notes.append("numbers of tokens and classes in its inputs are zeros")


def by_name(plan, model, config, options):
    names = list(inspect.signature(model.forward).parameters)
    required = [name for name, one in inspect.signature(model.forward).parameters.items()
                if one.default is inspect.Parameter.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    first = next((name for name in names if name in TOKENS), None)
    table = next((module for module in model.modules() if type(module).__name__ == "Embedding"), None)
    if first is None or table is None or any(name not in TOKENS + ("labels", "targets") for name in required):
        raise Refused("what %s takes (%s) cannot be told from its names" % (plan.class_name, ", ".join(names)),
                      "def make_model(): return model, {%s}   # the network and example inputs" % ", ".join('"%s": tensor' % name for name in required or names[:1]))
    most = next((getattr(config, name) for name in ("block_size", "max_seq_len", "n_ctx", "max_position_embeddings") if hasattr(config, name)), 1024)
    plan.tokens, plan.tokens_from = options["sequence"] or most, "--sequence" if options["sequence"] else "default; --sequence N"
    for name in names:
        if name in TOKENS + ("labels", "targets"):
            plan.add(name, "torch.randint(0, %d, (BATCH, SEQUENCE))" % table.num_embeddings, "batch x tokens", "int64")
