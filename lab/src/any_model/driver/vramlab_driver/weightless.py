"""Networks without weights: parameters are made on `meta` and then allocated on the card, in the order in which `model.to` moves them.

Small tensors are made for real, so that what a class computes while it is built (rates of dropout, tables of positions) is known."""

import contextlib

import torch

# Tensors with more elements than this are made on `meta`.
SMALL = 65536

# Functions that make a tensor of a shape that they are told.
FACTORIES = {
    torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint, torch.empty_strided,
    torch.eye, torch.arange, torch.linspace, torch.logspace, torch.tril_indices, torch.triu_indices, torch.randperm,
}


# Parameters of bitsandbytes.
QUANTIZED = ("Params4bit", "Int8Params")
# Arguments of theirs that say how they are quantized.
OF_QUANTIZED = ("quant_type", "blocksize", "compress_statistics", "quant_storage", "has_fp16_weights")


class ParametersOnMeta(torch.overrides.TorchFunctionMode):
    """Makes large tensors on `meta`, and small ones on the host."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in FACTORIES and str(kwargs.get("device") or "cpu").startswith(("cpu", "cuda")):
            without = {name: value for name, value in kwargs.items() if name not in ("generator", "pin_memory")}
            with torch._C.DisableTorchFunction():
                made = function(*args, **dict(without, device="meta"))
            if made.numel() > SMALL:
                return made
            return function(*args, **dict(kwargs, device="cpu"))
        return function(*args, **kwargs)


def build(make):
    """Calls `make`, which builds a network, so that no weights exist. Returns the network and how it was built: with small tensors on the
    host, or, if the class cannot take that, wholly on `meta`."""
    try:
        with ParametersOnMeta():
            model = make()
        return model, "host"
    except (RuntimeError, NotImplementedError, TypeError) as error:
        if "meta" not in str(error).lower() and "same device" not in str(error):
            raise
    with torch.device("meta"):
        return make(), "meta"


def to_card(model, device="cuda"):
    """Allocates a network's parameters and buffers on a device, each once, in the order of `torch.nn.Module.to`."""
    moved = {}

    def on_card(tensor):
        key = id(tensor)
        if key not in moved:
            # The old tensor is kept, so that no other gets its number.
            value = torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.detach().to(device)
            moved[key] = (tensor, value)
        return moved[key][1]

    with torch.no_grad():
        walk(model, moved, on_card, device)
    return model


def quantized_on_card(parameter, device):
    """Allocates weights of bitsandbytes: they arrive in the type that they are loaded in, are quantized, and the first form is freed."""
    options = {name: value for name, value in parameter.__dict__.items() if name in OF_QUANTIZED}
    arrived = torch.empty_like(parameter.data, device=device)
    # transformers hands weights of 8 bits over from the host.
    source = torch.empty_like(arrived, device="cpu") if type(parameter).__name__ == "Int8Params" else arrived
    return type(parameter)(source, requires_grad=False, **options).to(device)


def parameter_on_card(parameter, on_card):
    made = torch.nn.Parameter(on_card(parameter), requires_grad=parameter.requires_grad)
    made.__dict__.update(parameter.__dict__)
    return made


def walk(module, moved, on_card, device):
    for child in module.children():
        walk(child, moved, on_card, device)
    for name, parameter in module._parameters.items():
        # A module that several others share was moved before.
        if parameter is None or parameter.is_cuda:
            continue
        key = ("parameter", id(parameter))
        if key not in moved:
            quantized = type(parameter).__name__ in QUANTIZED
            moved[key] = (parameter, quantized_on_card(parameter, device) if quantized else parameter_on_card(parameter, on_card))
        module._parameters[name] = moved[key][1]
    for name, buffer in module._buffers.items():
        if buffer is not None and not buffer.is_cuda:
            module._buffers[name] = on_card(buffer)
    for name, value in list(module.__dict__.items()):
        # `model.to` leaves a plain attribute on the host.
        if isinstance(value, torch.Tensor) and value.is_meta:
            module.__dict__[name] = torch.zeros_like(value, device="cpu")


@contextlib.contextmanager
def wholly_on_meta(model):
    """Puts a network's small tensors on `meta` as well, for as long as something runs there."""
    kept = []
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for name, tensor in list(table.items()):
                if tensor is not None and not tensor.is_meta:
                    kept.append((table, name, tensor))
                    meta = tensor.detach().to("meta")
                    table[name] = torch.nn.Parameter(meta, requires_grad=False) if table is module._parameters else meta
    try:
        yield
    finally:
        for table, name, tensor in kept:
            table[name] = tensor
