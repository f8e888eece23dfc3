"""What a training script can call: the public names of `trainrun` and its helpers.

Read from the source, not imported: torch need not be installed, and signatures stay as written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tools.reference.markdown import document, prose

SOURCE = Path(__file__).parents[2] / "worker_image"
FRAMEWORKS = ("trainrun.accelerate", "trainrun.lightning", "trainrun.transformers")
PACKAGES = ("trainrun", "trainrun.torch", *FRAMEWORKS, "trainrun.mlflow")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    """The page."""
    return document(
        "The library",
        "the docstrings of `worker_image/trainrun`",
        "How to use it is in [training scripts](../training-scripts.md).",
        *(_package(name) for name in PACKAGES),
    )


def _package(name: str) -> str:
    tree = _tree(name)
    homes = _homes(tree)
    parts = [f"## `{name}`", prose(ast.get_docstring(tree))]
    for public in sorted(_public(tree), key=lambda text: (text[0].isupper(), text)):
        parts.append(_definition(homes.get(public, name), public))
    return "\n\n".join(parts)


def _tree(module: str) -> ast.Module:
    path = SOURCE.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _public(package: ast.Module) -> list[str]:
    for node in package.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise LookupError("the package has no __all__")


def _homes(package: ast.Module) -> dict[str, str]:
    """The module that each name is imported from."""
    imports = [node for node in ast.walk(package) if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def _definition(module: str, name: str) -> str:
    found = _found(module, name)
    if isinstance(found, ast.ClassDef):
        return _class(found, [*_bases(module, found), found])
    return f"### `{_signature(found)}`\n\n{prose(ast.get_docstring(found))}"


def _found(module: str, name: str) -> ast.ClassDef | Function:
    return next(
        node
        for node in _tree(module).body
        if isinstance(node, ast.ClassDef | Function) and node.name == name
    )


def _bases(module: str, found: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """Base classes from other modules of the package: their fields belong to the class."""
    homes = _homes(_tree(module))
    for name in map(ast.unparse, found.bases):
        if homes.get(name, "").startswith("trainrun."):
            base = _found(homes[name], name)
            if isinstance(base, ast.ClassDef):
                yield base


def _class(found: ast.ClassDef, with_bases: list[ast.ClassDef]) -> str:
    bases = ", ".join(ast.unparse(base) for base in found.bases)
    parts = [f"### class `{found.name}{f'({bases})' if bases else ''}`"]
    parts.append(prose(ast.get_docstring(found)))
    for node in found.body:
        if isinstance(node, Function) and node.name == "__init__":
            parts.append(_member(_signature(node, found.name), node))
    attributes = [line for cls in with_bases for line in _attributes(cls)]
    if attributes:
        parts.append("\n".join(attributes))
    for node in found.body:
        if (
            isinstance(node, Function)
            and not node.name.startswith("_")
            and not _is(node, "property")
        ):
            parts.append(_member(_signature(node), node))
    return "\n\n".join(parts)


def _member(signature: str, node: Function) -> str:
    return f"#### `{signature}`\n\n{prose(ast.get_docstring(node))}"


def _attributes(found: ast.ClassDef) -> Iterator[str]:
    """Fields with the docstring below them, and properties."""
    for node, after in zip(found.body, [*found.body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.AnnAssign):
            text = after.value if isinstance(after, ast.Expr) else None
            told = text.value if isinstance(text, ast.Constant) else ""
            yield _attribute(ast.unparse(node.target), node.annotation, str(told))
        elif isinstance(node, Function) and _is(node, "property") and node.name[0] != "_":
            yield _attribute(node.name, node.returns, ast.get_docstring(node) or "")


def _attribute(name: str, kind: ast.expr | None, text: str) -> str:
    return f"- `{name}: {ast.unparse(kind) if kind else ''}` – {' '.join(text.split())}"


def _signature(node: Function, name: str = "") -> str:
    arguments = node.args
    method = bool(arguments.args) and arguments.args[0].arg in ("self", "cls")
    if method:
        arguments.args.pop(0)
    # As ruff writes it: spaces around the default of an annotated argument.
    listed = re.sub(r"(: [^=,]+)=", r"\1 = ", ast.unparse(arguments))
    text = f"{name or node.name}({listed})"
    return f"{text} -> {ast.unparse(node.returns)}" if node.returns and not name else text


def _is(node: Function, decorator: str) -> bool:
    return any(ast.unparse(entry) == decorator for entry in node.decorator_list)
