"""One source, all of its mutants, and what becomes of them."""

from __future__ import annotations

import ast
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from tools.mutants.child import (
    FAILED,
    Chosen,
    code_of,
    forked,
    function_at,
    module_name,
    run_anew,
    run_items,
)
from tools.mutants.coverage import ROOT, Tests
from tools.mutants.operators import Mutant, mutants

if TYPE_CHECKING:
    from types import CodeType

    import pytest

SECONDS = 900
"""For one mutant, by the clock; its processor time is bounded by the child itself."""
SAMPLE = 20
"""Tests that must pass with a source that is as it is; all of them have passed with coverage."""


@dataclass(frozen=True)
class Result:
    """What has become of a mutant: Killed, Survived, Equivalent or Uncovered."""

    target: str
    outcome: str


def say(line: str) -> None:
    """Print it, also while pytest has a session."""
    assert sys.__stdout__ is not None
    sys.__stdout__.write(f"{line}\n")
    sys.__stdout__.flush()


class Target:
    """Tries the mutants of one source."""

    def __init__(
        self, name: str, path: str, tests: Tests, *, folders: list[str], known: set[str], jobs: int
    ) -> None:
        self.name, self.path, self._known, self._jobs = name, ROOT / path, known, jobs
        self._folders = folders
        self._module = self.path.relative_to(ROOT)
        self._tests = tests
        self._lines = self.path.read_text().splitlines()
        self._tree = ast.parse(self.path.read_text())
        self._running: dict[int, tuple[str, float]] = {}
        self.results: list[Result] = []

    def try_tables(self) -> None:
        """Mutants of what an import executes; the first is none, and must survive.

        Who reads a table executes no line of it: what other tests see of it counts as well.
        """
        say(f"{self.name}: {sum(1 for _ in mutants(self._tree))} mutants; first those of tables")
        everything = set().union(*self._tests.values())
        sample = Chosen({*sorted(everything)[:SAMPLE]}, alone=True)
        self._check(self._anew(None, sample))
        for mutant in mutants(self._tree):
            if not self._is_in_function(mutant.line):
                first = Chosen(self._tests.get(mutant.line, everything))
                self._try(mutant, self._anew(mutant, first))
        self._wait_for_all()

    def _anew(self, mutant: Mutant | None, first: Chosen) -> Callable[[], NoReturn]:
        code = self._code(mutant)
        return lambda: run_anew(self._module, code, self._folders, first)

    def try_functions(self, session: pytest.Session) -> None:
        """Mutants within functions, by the items that this session has collected."""
        say(f"{self.name}: those of functions")
        module = sys.modules[module_name(self._module)]
        items = sorted(session.items, key=lambda item: self.name not in item.nodeid)
        self._check(lambda: run_items(session, items[:SAMPLE]))
        for mutant in mutants(self._tree):
            if not self._is_in_function(mutant.line):
                continue
            found = function_at(module, self._tree, mutant.line)
            if found is None:
                raise SystemExit(f"{self._module}:{mutant.line} is in no function that is known")
            function, name = found
            code = code_of(self._code(mutant), name)
            tests = self._tests.get(mutant.line, set())
            chosen = [item for item in items if item.nodeid in tests]

            def live(f=function, c=code, chosen=chosen) -> NoReturn:  # type: ignore[no-untyped-def]
                f.__code__ = c
                run_items(session, chosen)

            self._try(mutant, live if chosen else None)
        self._wait_for_all()

    def _is_in_function(self, line: int) -> bool:
        """Its body, that is: what its head says, an import executes."""
        functions = (n for n in ast.walk(self._tree) if isinstance(n, ast.FunctionDef))
        return any(f.body[0].lineno <= line <= (f.end_lineno or 0) for f in functions)

    def _code(self, mutant: Mutant | None) -> CodeType:
        if mutant is not None:
            mutant.apply()
        code = compile(ast.fix_missing_locations(self._tree), str(self.path), "exec")
        if mutant is not None:
            mutant.undo()
        return code

    def _check(self, child: Callable[[], NoReturn]) -> None:
        """With the source as it is: otherwise every mutant would look killed."""
        _, status = os.waitpid(forked(child), 0)
        if status:
            raise SystemExit(f"{self._module}: tests fail, or are not found, as it is: {status}")

    def _try(self, mutant: Mutant, child: Callable[[], NoReturn] | None) -> None:
        line = self._lines[mutant.line - 1].strip()
        if f"{self.path.name}: {line}: {mutant.what}" in self._known:
            self._has("Equivalent")
        elif child is None:
            self._has("Uncovered", f"{self.path.name}:{mutant.line}: {mutant.what}")
        else:
            while len(self._running) >= self._jobs:
                self._wait()
            name = f"{self.path.name}:{mutant.line}: {mutant.what}"
            self._running[forked(child)] = (name, time.monotonic())

    def _has(self, outcome: str, shown: str = "") -> None:
        self.results.append(Result(self.name, outcome))
        if shown:
            say(f"{outcome.lower()}: {shown}")

    def _wait_for_all(self) -> None:
        while self._running:
            self._wait()

    def _wait(self) -> None:
        """A moment for children that end, or end one that takes too long."""
        time.sleep(0.02)
        for pid, (name, begun) in list(self._running.items()):
            late = time.monotonic() - begun > SECONDS
            if late:
                os.kill(pid, 9)
            ended, status = os.waitpid(pid, 0 if late else os.WNOHANG)
            if ended:
                del self._running[pid]
                if os.WIFEXITED(status) and os.WEXITSTATUS(status) == FAILED:
                    raise SystemExit(f"{name}: could not be tried")
                self._has("Killed" if status else "Survived", "" if status else name)
