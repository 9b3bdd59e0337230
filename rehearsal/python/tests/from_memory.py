"""The package as its processes have it: imported from memory, so that its code has the file name that hides it."""

import pathlib
import re

HERE = pathlib.Path(__file__).parents[1]


def texts():
    """The text of each module, by its full name."""
    found = {}
    for path in sorted((HERE / "_vramlab_rehearsal").rglob("*.py")):
        name = ".".join(path.relative_to(HERE).with_suffix("").parts)
        found[re.sub(r"\.__init__$", "", name)] = path.read_text()
    return found


def program(end):
    """A program that imports the package, as `src/lib.rs` makes it."""
    whole = f"{(HERE / 'importer.py').read_text()}\nadd({texts()!r})\n{end}"
    return f"exec(compile({whole!r}, '<vramlab>', 'exec'))\n"


def imported():
    """Makes this process find the package."""
    own: dict = {}
    exec(compile((HERE / "importer.py").read_text(), "<vramlab>", "exec"), own)
    own["add"](texts())
