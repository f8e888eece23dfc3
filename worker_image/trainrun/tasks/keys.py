"""Keys of calls: equal for equal calls, in every process, hash seed and version of Python.

Layer: tasks. A pickle will not do: it depends on interned texts and on the order of sets in this
process. Byte code and `ast.dump` change with each minor version of Python. A changed helper does
not change a key; `code_of_module` shows which done tasks ran older code.
"""

from __future__ import annotations

import ast
import copyreg
import enum
import hashlib
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path, PurePath
from typing import Any

_LONG = 64
"""Content above this many bytes is replaced by its digest."""
_BY_TEXT: dict[type, Callable[[Any], str]] = {
    **dict.fromkeys((type(None), bool, float, complex, range, type(Ellipsis)), repr),
    int: hex,
    str: str,
}
_BY_REPR = {"datetime", "decimal", "fractions", "uuid", "zoneinfo"}
"""Modules whose values have a complete and stable repr in every version of Python."""
_STABLE = {"collections", "copyreg"}
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
_UNSEEN = {"ctx", "kind", "type_comment", "type_ignores"}
"""Fields of a syntax tree that do not change what the code does."""


def key_of_call(function: str, code: str, arguments: bytes, results: int, nth: int) -> str:
    """Key of the `nth` equal call, from 0; `code` is its version or a hash of its source."""
    parts = (*map(_text, (function, code, str(results), str(nth))), arguments)
    return _sha256(_item("call", *(_item("", part) for part in parts)))


def key_of_value(value: bytes) -> str:
    """Key of an encoded value of `put`: its content only."""
    return _sha256(_item("put", value))


def code_of(source: str, *, of_task: bool = False) -> str:
    """A hash of this code without comments, docstrings and layout.

    `of_task`: the source is one function, whose first decorator is ignored, since options may
    change without changing the result. Raises SyntaxError.
    """
    tree = _parsed(f"if 1:\n{source}" if source[:1] in (" ", "\t") else source)
    if of_task:
        function: Any = next(node for node in ast.walk(tree) if hasattr(node, "decorator_list"))
        others = [one for one in function.decorator_list if ast.unparse(one) != "staticmethod"]
        function.decorator_list = others[1:]
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        if isinstance(node, ast.JoinedStr):  # Python 3.12 has empty parts in some f-strings
            node.values = [part for part in node.values if getattr(part, "value", None) != ""]
    return _sha256(_tree(tree))


def _tree(node: object) -> bytes:
    """Leaves out empty fields, since newer versions of Python add some."""
    if isinstance(node, list):
        return _item("list", *map(_tree, node))
    if isinstance(node, ast.Constant):
        return _item("Constant", encoded(node.value, set()))
    if not isinstance(node, ast.AST):
        return encoded(node, set())
    filled = [
        (name, value)
        for name, value in ast.iter_fields(node)
        if name not in _UNSEEN and value is not None and value != []
    ]
    return _item(type(node).__name__, *(_item(name, _tree(value)) for name, value in filled))


def encoded(value: Any, unstable: set[str]) -> bytes:
    """The value by type and content, with sets and dicts sorted.

    Adds to `unstable` the names of types that another process may encode differently. Raises
    RecursionError if the value contains itself, and what its own `__reduce_ex__` raises.
    """
    kind = type(value)
    if kind in _BY_TEXT:
        return _item(kind.__name__, _text(_BY_TEXT[kind](value)))
    if kind in (bytes, bytearray):
        return _item(kind.__name__, _content(value))
    if kind in (list, tuple):
        return _item(kind.__name__, *(encoded(item, unstable) for item in value))
    if kind in (set, frozenset):
        return _item(kind.__name__, *sorted(encoded(item, unstable) for item in value))
    if kind is dict:
        return _pairs("dict", value.items(), unstable)
    if isinstance(value, _NAMED):
        return _item("name", _text(_name(value)))
    return _of_class(value, kind, unstable)


def _of_class(value: Any, kind: type, unstable: set[str]) -> bytes:
    module = kind.__module__.partition(".")[0]
    if isinstance(value, enum.Enum):
        return _item(_name(kind), encoded(value.value, unstable))
    if isinstance(value, PurePath):  # pathlib has moved its classes between versions
        return _item(kind.__qualname__, _text(str(value)))
    if module in _BY_REPR:
        return _item(_name(kind), _text(repr(value)))
    # Not what lies in a submodule of numpy, such as masked arrays.
    if kind.__module__ == "numpy" and hasattr(value, "tobytes") and not value.dtype.hasobject:
        layout = [value.dtype.descr, value.shape]
        return _item(_name(kind), encoded(layout, unstable), _content(value.tobytes()))
    if module == "torch" and str(getattr(value, "layout", "")) == "torch.strided":
        layout = [str(value.dtype), tuple(value.shape)]
        flat = value.detach().cpu().contiguous().flatten().view(sys.modules["torch"].uint8)
        return _item(_name(kind), encoded(layout, unstable), _content(flat.numpy().tobytes()))
    if is_dataclass(value):
        held = [(field.name, getattr(value, field.name)) for field in fields(value)]
        return _pairs(_name(kind), held, unstable)
    return _reduced(value, kind, unstable)


def _reduced(value: Any, kind: type, unstable: set[str]) -> bytes:
    """As pickle takes it to pieces."""
    taken_apart: Any = copyreg.dispatch_table.get(kind, lambda one: one.__reduce_ex__(4))
    reduced = taken_apart(value)
    if isinstance(reduced, str):
        return _item("name", _text(f"{value.__module__}.{reduced}"))
    if kind.__module__ not in _STABLE:
        unstable.add(_name(kind))
    make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    return _item(
        _name(kind),
        *(encoded(part, unstable) for part in (make, arguments, state, *(items or ()))),
        _pairs("dict", pairs or (), unstable),
    )


def _pairs(name: str, pairs: Iterable[tuple[Any, Any]], unstable: set[str]) -> bytes:
    codes_by_path = (_item("", *(encoded(part, unstable) for part in pair)) for pair in pairs)
    return _item(name, *sorted(codes_by_path))


def _name(value: Any) -> str:
    module = getattr(value, "__module__", "") or ""
    return f"{module}.{getattr(value, '__qualname__', value.__name__)}"


def _content(data: bytes) -> bytes:
    return bytes(data) if len(data) <= _LONG else b"sha256 " + hashlib.sha256(data).digest()


def _text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _item(name: str, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return b"%b:%d:%b" % (name.encode(), len(content), content)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_PARSING = threading.Lock()


def _parsed(source: str) -> ast.Module:
    """Parse in one thread at a time: two at once may raise SystemError, "AST constructor recursion
    depth mismatch", during a garbage collection (seen on Python 3.11.7)."""
    with _PARSING:
        return ast.parse(source)


def code_of_module(module: str, file: Path) -> str:
    """A hash of the code of this file and of everything below its top folder that it imports, also
    indirectly; without comments, docstrings and layout. Empty if the file cannot be read."""
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
                todo += _imported(_parsed(source), path, top)
    codes_by_path = sorted((str(path.relative_to(top)), code) for path, code in codes.items())
    return _sha256(repr(codes_by_path).encode()) if codes[file] else ""


def _imported(tree: ast.AST, path: Path, top: Path) -> Iterator[Path]:
    if top.name in ("site-packages", "dist-packages"):  # not the user's code
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
