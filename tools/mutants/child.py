"""A process in which one module is another one than on the disk, and the tests that look at it.

Where only a function differs, a process that has everything imported and collected is forked, and
the code of that function is exchanged. Where a table of the module differs, ours is imported anew.
"""

from __future__ import annotations

import ast
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import resource
import sys
import traceback
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TESTED = {"core": ["tests/core"], "checkpoint": ["tests/checkpoint"]}
"""Folders whose tests are run."""

OPTIONS = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-x", "-q", "-n", "0", "--quick"]
OPTIONS += ["-p", "no:cacheprovider", "--no-header", "-s"]


def module_name(path: Path) -> str:
    """Of a source below operator/ or worker_image/, relative to the repository."""
    return ".".join(path.with_suffix("").parts[1:])


PROCESSOR_SECONDS = 120
"""For one mutant: one that computes for ever is noticed as well, also on a busy machine."""


FAILED = 70
"""Exit code of a child in which not a test failed, but this tool: EX_SOFTWARE of sysexits.h."""


def forked(child: Callable[[], NoReturn]) -> int:
    """The process id of a new process that does this and nothing else, whatever it raises."""
    pid = os.fork()
    if pid == 0:
        try:
            child()
        except BaseException:  # noqa: BLE001 - otherwise the child would go on as its parent
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(FAILED)
    return pid


def mute() -> None:
    """Whatever is written is written nowhere, and nothing goes on for ever."""
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def run_anew(path: Path, code: CodeType, folders: Sequence[str], first: Chosen) -> NoReturn:
    """Run tests of these folders with `code` as the module of `path`; exit code as of pytest."""
    mute()
    sys.meta_path.insert(0, _Instead(module_name(path), code, path.resolve()))
    os._exit(int(pytest.main([*OPTIONS, *folders], plugins=[first])))


def run_items(session: pytest.Session, items: list[pytest.Item]) -> NoReturn:
    """Run what has been collected; ends with 1 at the first test that fails, else with 0."""
    mute()
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            os._exit(1)
    os._exit(0)


def function_at(module: ModuleType, tree: ast.Module, line: int) -> tuple[FunctionType, str] | None:
    """The outermost function or method that a line is in the body of, and its qualified name."""
    names, body = [], tree.body
    while True:
        inside = (n for n in body if isinstance(n, ast.ClassDef | ast.FunctionDef))
        node = next((n for n in inside if n.body[0].lineno <= line <= (n.end_lineno or 0)), None)
        if node is None:
            return None
        names.append(node.name)
        if isinstance(node, ast.FunctionDef):
            break
        body = node.body
    found: object = module
    for name in names:
        found = vars(found).get(name)
    for wrapper, inner in ((property, "fget"), (functools.cached_property, "func")):
        found = getattr(found, inner) if isinstance(found, wrapper) else found
    # What a decorator has made of it has a code of its own, and calls ours.
    found = inspect.unwrap(found) if callable(found) else found
    name = ".".join(names)
    return (found, name) if isinstance(found, FunctionType) else None


def code_of(code: CodeType, name: str) -> CodeType | None:
    """The code of a function of a module, by its qualified name."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_qualname == name:
                return inner
            if name.startswith(f"{inner.co_qualname}."):
                return code_of(inner, name)
    return None


class Chosen:
    """Runs the tests of these names before all others, or alone."""

    def __init__(self, tests: set[str], *, alone: bool = False) -> None:
        self._tests, self._alone = tests, alone

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put them in their order."""
        others = [item for item in items if item.nodeid not in self._tests]
        chosen = [item for item in items if item.nodeid in self._tests]
        items[:] = chosen if self._alone else [*chosen, *others]


class _Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, as this code."""

    def __init__(self, name: str, code: CodeType, path: Path) -> None:
        self._name, self._code, self._path = name, code, path

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)
