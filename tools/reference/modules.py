"""Every module and what it is for, from the first paragraph of its docstring."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tools.reference.markdown import code, document, prose, table

ROOT = Path(__file__).parents[2]
SIDES = ("operator/trainrun_operator", "worker_image/trainrun")


def page() -> str:
    """The page."""
    return document(
        "Modules",
        "the first sentences of docstrings",
        "How they work together is in [architecture](../architecture.md).",
        *(part for side in SIDES for part in _packages(ROOT / side)),
    )


def _packages(folder: Path) -> Iterator[str]:
    """A heading, a sentence and a table for each package that has modules."""
    modules = [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    if modules:
        yield f"## `{folder.relative_to(ROOT)}`"
        yield _purpose(folder / "__init__.py")
        yield table(("Module", "What it is for"), ((code(it.name), _purpose(it)) for it in modules))
    for below in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from _packages(below)


def _purpose(path: Path) -> str:
    """The first paragraph, on one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return " ".join(prose(docstring).partition("\n\n")[0].split())
