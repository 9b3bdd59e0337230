"""Starts the layer: `install(torch)`, before the script does anything on a card."""

import contextlib
import ctypes
import functools
import sys
import types

from .kernels import hear_kernels
from .nonzero import replace_nonzero
from .operators import PLAIN
from .ranks import hear_ranks
from .values import Values

# Of glibc's `malloc.h`.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def declare(library):
    library.vramlab_rehearsal_show.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t]
    library.vramlab_rehearsal_queue.argtypes = [ctypes.c_int64]
    library.vramlab_rehearsal_written.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.vramlab_rehearsal_written.restype = ctypes.c_int64
    library.vramlab_rehearsal_promise.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
    library.vramlab_rehearsal_promise.restype = ctypes.c_uint64
    library.vramlab_rehearsal_promised.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t]


def keep_freed_memory():
    """Lets the C library keep memory that is freed: contents of some MB, made and freed in each step, would take new pages each time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)
        mallopt(M_TRIM_THRESHOLD, 256 << 20)


@contextlib.contextmanager
def without(mode):
    """Leaves the mode, which is the innermost, for as long as something runs."""
    mode.__exit__(None, None, None)
    try:
        yield
    finally:
        mode.__enter__()


def pause_while_compiled(torch, mode):
    """Compiled functions run without the mode: `torch.compile` would trace it, and make other graphs than without."""
    compile_function = torch.compile

    def paused(run):
        @functools.wraps(run)
        def outside(*args, **kwargs):
            if torch.compiler.is_compiling() or torch.overrides._get_current_function_mode() is not mode:
                return run(*args, **kwargs)
            with without(mode):
                return run(*args, **kwargs)

        return outside

    @functools.cache
    def prepare():
        from torch._dynamo.eval_frame import _TorchDynamoContext as context

        wrap = context.__call__

        def wrapped(self, function):
            made = wrap(self, function)
            return paused(made) if isinstance(made, types.FunctionType) else made

        context.__call__ = wrapped

    @functools.wraps(compile_function)
    def compile(*args, **kwargs):
        prepare()
        return compile_function(*args, **kwargs)

    torch.compile = compile


def keep_fast_paths(torch, mode):
    """Transformers in evaluation mode take fewer temporaries where no tensor has functions of its own. They ask for those of a mode as
    well, and would take the slow path because of the layer's."""
    has_torch_function = torch.overrides.has_torch_function
    asking = ("torch.nn.modules.transformer", "torch.nn.modules.activation")

    @functools.wraps(has_torch_function)
    def without_own_mode(arguments):
        if sys._getframe(1).f_globals.get("__name__") not in asking or torch.overrides._get_current_function_mode() is not mode:
            return has_torch_function(arguments)
        with without(mode):
            return has_torch_function(arguments)

    torch.overrides.has_torch_function = without_own_mode


def install(torch, library=None):
    """Starts the layer, and returns the object from which a report is made."""
    import torch.multiprocessing.reductions  # type: ignore[no-redef]

    library = library or ctypes.CDLL(None)
    declare(library)
    keep_freed_memory()
    values = Values(torch, library)
    values.callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)(values.on_read)
    library.vramlab_rehearsal_listen(values.callback)
    replace_nonzero(torch, values)
    hear_ranks(torch, values)
    hear_kernels(values)
    is_compiling = torch.compiler.is_compiling

    class Mode(torch.overrides.TorchFunctionMode):  # type: ignore[name-defined]
        def __torch_function__(self, function, types, args=(), kwargs=None):
            name = getattr(function, "__name__", "")
            if name in PLAIN or is_compiling():
                return function(*args, **kwargs) if kwargs else function(*args)
            return values.call(function, name, args, kwargs or {})

    values.mode = Mode()
    values.mode.__enter__()
    pause_while_compiled(torch, values.mode)
    keep_fast_paths(torch, values.mode)
    return values
