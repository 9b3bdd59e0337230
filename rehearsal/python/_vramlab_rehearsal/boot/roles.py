"""Purpose of each address, as far as PyTorch's own objects show it. Nothing here allocates on a card."""

import sys

from . import schema
from .report import guarded

# Steps of which the addresses of parameters, gradients and states are kept: the first ones and the last ones.
FIRST_STEPS = 2
LAST_STEPS = 4
# Maximum numbers of a step's addresses, and of backward passes and batches, that are kept.
MAX_ADDRESSES = 100000
MAX_RANGES = 2000
MAX_INPUTS = 20000


def now():
    import time

    return int(time.time() * 1e6)


class Roles:
    """Addresses of parameters, gradients and states, times of backward passes, and batches that came from the host."""

    def __init__(self, torch):
        import weakref

        self.torch = torch
        self.modules = weakref.WeakSet()
        # Called with the tensors at which a backward pass begins.
        self.begins = None
        self.clear()

    def clear(self):
        import collections

        self.held = []
        self.backward = collections.deque(maxlen=MAX_RANGES)
        self.depth = 0
        self.inputs = collections.deque(maxlen=MAX_INPUTS)

    def watch_modules(self):
        """Remembers modules as they get parameters and buffers. Those of a frozen generation (`gc.freeze`) cannot be listed later."""
        module = getattr(self.torch.nn.modules, "module", None) if hasattr(self.torch.nn, "modules") else None
        add = self.modules.add

        def registered(module, _name, _value):
            try:
                add(module)
            except TypeError:
                # A module without a hash.
                pass

        for name in ("register_module_parameter_registration_hook", "register_module_buffer_registration_hook"):
            register = getattr(module, name, None)
            if register:
                register(registered)

    def install(self):
        self.watch_modules()
        autograd = getattr(self.torch, "autograd", None)
        run = getattr(autograd, "_engine_run_backward", None)
        if run is None:
            return
        import functools

        @functools.wraps(run)
        def marked(*args, **kwargs):
            # Checkpointing runs backward passes inside another backward pass.
            outer = self.depth == 0
            if outer:
                self.backward.append([now(), None])
                if self.begins:
                    self.begins(args[0])
            self.depth += 1
            try:
                return run(*args, **kwargs)
            finally:
                self.depth -= 1
                if outer and self.backward:
                    self.backward[-1][1] = now()
                    if len(self.backward) <= FIRST_STEPS:
                        guarded(self.hold)(None)

        autograd._engine_run_backward = marked

    def watch_inputs(self, values):
        """Finds batches: `to` and `cuda` move them from the host, which the layer for values sees."""
        values.moved = guarded(self.moved)

    def moved(self, tensor, out):
        torch = self.torch
        # A tensor that is not plain stands for other tensors.
        plain = type(tensor) is torch.Tensor and type(out) is torch.Tensor
        if not plain or not out.is_cuda or tensor.is_cuda:
            return
        frame = sys._getframe(1)
        # A module that is moved is not a batch.
        for _ in range(12):
            if frame is None:
                break
            if frame.f_code.co_name == "_apply" and frame.f_code.co_filename.endswith("module.py"):
                return
            frame = frame.f_back
        with torch._C.DisableTorchFunction():
            self.inputs.append([out.untyped_storage().data_ptr(), now()])

    def hold(self, optimizer, everything=False):
        """Keeps the addresses of an optimizer's tensors, or of all parameters, by purpose."""
        with self.torch._C.DisableTorchFunction():
            self.hold_quietly(optimizer, everything)

    def hold_quietly(self, optimizer, everything):
        held = schema.Held(time_us=now(), parameter=[], gradient=[], optimizer=[], buffer=[])
        state = optimizer.state if optimizer else {}
        own = [p for group in optimizer.param_groups for p in group["params"]] if optimizer else []
        if optimizer is None or everything or len(self.held) < FIRST_STEPS:
            # Frozen weights belong to no optimizer.
            parameters, buffers = self.of_modules()
            own = list({id(p): p for p in [*own, *parameters]}.values())
        else:
            buffers = []

        def add(kind, tensor):
            for part in parts_of(self.torch, tensor):
                try:
                    if part.is_cuda:
                        held[kind].append(part.untyped_storage().data_ptr())  # type: ignore[literal-required]
                except (RuntimeError, NotImplementedError):
                    # The tensor has no memory: it belongs to a transform, or to the compiler.
                    pass

        for parameter in own[:MAX_ADDRESSES]:
            add("parameter", parameter)
            # Reading the gradient of a tensor that is not a leaf makes PyTorch warn the script.
            if getattr(parameter, "is_leaf", True):
                add("gradient", parameter.grad)
            kept = state.get(parameter)
            for value in list(kept.values()) if isinstance(kept, dict) else []:
                add("optimizer", value)
        for buffer in buffers[:MAX_ADDRESSES]:
            add("buffer", buffer)
        steps = self.held
        if any(held[kind] for kind in ("parameter", "gradient", "optimizer", "buffer")):
            steps.append(held)
        if len(steps) > 2 * FIRST_STEPS + LAST_STEPS:
            del steps[2 * FIRST_STEPS]

    def of_modules(self):
        """Returns all parameters that exist, whoever holds them, and all buffers of modules."""
        import gc

        known, found, modules = {}, [], {id(module): module for module in list(self.modules)}
        parameter, module = getattr(self.torch.nn, "Parameter", None), getattr(self.torch.nn, "Module", None)
        for thing in gc.get_objects() if parameter else []:
            kind = type(thing)
            if kind not in known:
                known[kind] = 1 if issubclass(kind, parameter) else 2 if module and issubclass(kind, module) else 0
            if known[kind] == 1:
                found.append(thing)
            elif known[kind] == 2:
                modules[id(thing)] = thing
        buffers = []
        for one in modules.values():
            of = getattr(one, "__dict__", {})
            found += [value for value in (of.get("_parameters") or {}).values() if value is not None]
            buffers += [value for value in (of.get("_buffers") or {}).values() if value is not None]
        return found, buffers


def parts_of(torch, tensor, depth=0):
    """Yields the plain tensors that a tensor consists of: shards, the parts of a quantized weight, and what was set beside it."""
    if not isinstance(tensor, torch.Tensor):
        return
    flatten = getattr(tensor, "__tensor_flatten__", None)
    inner = getattr(tensor, "_local_tensor", None)
    if inner is not None:
        yield from parts_of(torch, inner, depth + 1)
    elif flatten and depth < 4:
        for name in flatten()[0]:
            yield from parts_of(torch, getattr(tensor, name), depth + 1)
    else:
        yield tensor
    # What bitsandbytes needs to read a weight of 4 bits, which may be quantized itself.
    state = getattr(tensor, "quant_state", None)
    while state is not None and depth < 4:
        for value in list(getattr(state, "__dict__", {}).values()):
            yield from parts_of(torch, value, 4)
        state, depth = getattr(state, "state2", None), depth + 1


