"""What a task's function may call: its module, and the modules beside it that this one imports.

Layer: tasks. A changed helper changes no key, so this is what names done tasks whose code is not
today's.
"""

from __future__ import annotations

import ast
import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun.tasks.keys import code_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def code_of_module(module: str, file: Path) -> str:
    """A hash of the code of this file, and of all below its top folder that it imports, however
    indirectly: no comments, docstrings and layout. Empty where it cannot be read."""
    depth = module.count(".") + (file.name == "__init__.py")
    top = file.parents[depth if depth < len(file.parents) else 0]
    codes: dict[Path, str] = {}
    todo = [file]
    while todo:
        path = todo.pop()
        if path not in codes:
            codes[path] = ""
            with suppress(OSError, SyntaxError, ValueError):
                source = path.read_text(encoding="utf-8")
                codes[path] = code_of(source)
                todo += _imported(ast.parse(source), path, top)
    told = sorted((str(path.relative_to(top)), code) for path, code in codes.items())
    return hashlib.sha256(repr(told).encode()).hexdigest() if codes[file] else ""


def _imported(tree: ast.AST, path: Path, top: Path) -> Iterator[Path]:
    if top.name in ("site-packages", "dist-packages"):  # not the user's
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            base, names = top, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1] if node.level else top
            names = [f"{node.module or ''}.{alias.name}".lstrip(".") for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                module = base.joinpath(*parts[:end])
                yield from filter(Path.is_file, (module.with_suffix(".py"), module / "__init__.py"))
