# What a script meets that would be different, or in its way, because it is rehearsed.


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
    return HERE


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
    kept = []
    one = traceback
    while one is not None:
        if one.tb_frame.f_code.co_filename != "<vramlab>":
            kept.append(one)
        one = one.tb_next
    for first, second in zip(kept, [*kept[1:], None]):
        first.tb_next = second
    return kept[0] if kept else traceback


