"""No file of the repository's Python imports another one that imports it, directly or through others."""

from __future__ import annotations

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# Each folder with what its files import by name alone; a package is its folder's only entry.
FOLDERS = [
    "python/vramlab",
    "rehearsal/python/_vramlab_rehearsal",
    "rehearsal/python/tests",
    "lab/src/any_model/driver/vramlab_driver",
    "scripts/card",
    "scripts/export",
    "scripts/loop",
    "scripts/record",
    "scripts/rehearse",
    "scripts/zoo",
]


def imported(name: str, is_package: bool, text: str, known: set[str]) -> set[str]:
    """The modules among the known ones that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".") if is_package else name.split(".")[:-1]
            base = parts[: len(parts) - node.level + 1] if node.level else []
            full = ".".join([*base, *([node.module] if node.module else [])])
            # A name of a package may be a module of it.
            inner = {f"{full}.{alias.name}" for alias in node.names}
            found |= inner & known or {full}
    return (found & known) - {name}


def circle(uses: dict[str, set[str]]) -> list[str]:
    """A way from a module to itself, if there is one."""
    done: set[str] = set()

    def search(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for other in sorted(uses[name]):
            found = search(other, [*way, name])
            if found:
                return found
        done.add(name)
        return []

    return next((found for found in (search(name, []) for name in sorted(uses)) if found), [])


def uses_in(folder: pathlib.Path) -> dict[str, set[str]]:
    """What each module below a folder imports of the others."""
    is_package = (folder / "__init__.py").exists()
    files = {}
    for path in folder.rglob("*.py") if is_package else folder.glob("*.py"):
        parts = path.relative_to(folder.parent if is_package else folder).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    known = set(files)
    return {name: imported(name, path.name == "__init__.py", path.read_text(encoding="utf-8"), known) for name, path in files.items()}


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_import_leads_back(folder: str) -> None:
    uses = uses_in(ROOT / folder)
    assert len(uses) > 1, "the folder has no Python"
    assert circle(uses) == []


def test_a_circle_is_found(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "a": "from . import b\n",
        "b": "def late():\n    from .c import d\n",
        "c": "import package.a\n",
    }.items():
        (package / f"{name}.py").write_text(text)
    assert circle(uses_in(package)) == ["package.a", "package.b", "package.c", "package.a"]
    (package / "c.py").write_text("import package\n")
    assert circle(uses_in(package)) == []
