"""What a script meets that would be different, or in its way, because it is rehearsed."""

import os

from .. import OWN
from .settings import SETTINGS


def after_cuda_utilities(module):
    """Kernels that a script compiles need CUDA's headers: those of PyTorch's wheels, where no CUDA is installed."""
    import functools

    compile_kernel = getattr(module, "_nvrtc_compile", None)
    if compile_kernel is None:
        return

    @functools.wraps(compile_kernel)
    def with_headers(*args, **kwargs):
        import torch.utils.cpp_extension as extension

        if extension.CUDA_HOME is not None:
            return compile_kernel(*args, **kwargs)
        extension.CUDA_HOME = folder_of_headers()
        try:
            return compile_kernel(*args, **kwargs)
        finally:
            extension.CUDA_HOME = None

    module._nvrtc_compile = with_headers


def folder_of_headers():
    import importlib.util

    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations if found else ():
        for name in sorted(os.listdir(folder), reverse=True):
            if os.path.exists(os.path.join(folder, name, "include", "cuda_runtime.h")):
                return os.path.join(folder, name)
    return os.path.dirname(SETTINGS["answers"])


def without_own_frames(show):
    """Wraps `sys.excepthook`: the traceback of the script's error has no frames of the rehearsal."""

    def shown(kind, error, traceback):
        seen = set()
        pending = [error]
        while pending:
            one = pending.pop()
            if one is None or id(one) in seen:
                continue
            seen.add(id(one))
            one.__traceback__ = without(one.__traceback__)
            pending += [one.__cause__, one.__context__]
        show(kind, error, error.__traceback__ if error is not None else without(traceback))

    return shown


def without(traceback):
    """Returns a traceback without the frames of the rehearsal, unless nothing else is in it."""
    frames, one = [], traceback
    while one is not None:
        frames.append(one)
        one = one.tb_next
    kept = [one for at, one in enumerate(frames) if not is_own(frames, at)]
    if len(kept) < len(frames):
        for first, second in zip(kept, [*kept[1:], None]):
            first.tb_next = second
    return kept[0] if kept else traceback


def is_own(frames, at):
    """True for the rehearsal's frames, and for those through which PyTorch asks it: a function that does so is called once more."""
    code, following = frames[at].tb_frame.f_code, [one.tb_frame.f_code for one in frames[at + 1 :]]
    if code.co_filename == OWN:
        return True
    if code.co_name == "handle_torch_function":
        return bool(following) and following[0].co_filename == OWN
    asks = len(following) > 1 and following[0].co_name == "handle_torch_function" and following[1].co_filename == OWN
    return asks and code in following


def after_traceback(module):
    """The module's own readers of tracebacks, which loggers and libraries use, leave these frames out, too."""
    for name in ("walk_tb", "_walk_tb_with_full_positions"):
        walk = getattr(module, name, None)
        if walk:
            setattr(module, name, lambda tb, walk=walk: walk(without(tb)))


def after_threading(module):
    shown = getattr(module, "excepthook", None)
    if shown is None:
        return

    def shown_without(args):
        if args.exc_value is not None:
            args.exc_value.__traceback__ = without(args.exc_value.__traceback__)
            args = module.ExceptHookArgs((args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread))
        shown(args)

    module.excepthook = shown_without


