"""Lines of the script, as opposed to those of libraries."""

import sys

from ..libraries import is_library


def user_line():
    """Returns the innermost line of the script's own files."""
    import threading

    found = line_of(sys._getframe(1))
    main = threading.main_thread()
    if found == "?" and threading.current_thread() is not main:
        # This thread is PyTorch's own, like those of the backward pass. The main thread waits for it.
        found = line_of(sys._current_frames().get(main.ident))
    return found


def line_of(frame):
    any_line = "?"
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<"):
            line = "%s:%d" % (file, frame.f_lineno)
            if not is_library(file):
                return line
            if any_line == "?":
                any_line = line
        frame = frame.f_back
    return any_line
