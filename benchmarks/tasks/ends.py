"""Every end that a try of a task can have: the functions that both TrainRun and Ray are asked with.

Imported by the programs of both sides, so it knows neither.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ENOUGH = 5
"""The try that succeeds, so that `max_retries=-1` has an end."""


class Base(Exception):
    """What `retry_exceptions` names."""


class Derived(Base):
    """What the function raises."""


class WithLock(Exception):
    """Holds a lock."""

    def __init__(self) -> None:
        super().__init__("with a lock")
        self.lock = threading.Lock()


EXCEPTIONS: dict[str, type[BaseException]] = {"Base": Base, "ValueError": ValueError}


ORIGINALS = ("Derived", "MemoryError", "TypeError", "KeyboardInterrupt", "WithLock")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One cell of the table."""

    end: str
    max_retries: int
    retry_exceptions: str
    """`False`, `True`, or the name of a class."""

    def key(self) -> str:
        return f"{self.end}|{self.max_retries}|{self.retry_exceptions}"

    def options(self) -> dict[str, Any]:
        listed = self.retry_exceptions
        exceptions: Any = [EXCEPTIONS[listed]] if listed in EXCEPTIONS else listed == "True"
        return {"max_retries": self.max_retries, "retry_exceptions": exceptions}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What has come of a case."""

    tries: int
    outcome: str
    """`returned`, or what `get` raises: `died`, `cancelled`, `raised`, or `raised ValueError` where
    it is an instance of that class, too."""


def _kill(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))
    time.sleep(5)


def _raise(error: BaseException) -> None:
    raise error


ENDS: dict[str, Callable[[], Any]] = {
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(1)": lambda: os._exit(1),
    "sys.exit(0)": lambda: sys.exit(0),
    "sys.exit(1)": lambda: sys.exit(1),
    "SIGKILL": lambda: _kill("SIGKILL"),
    "SIGSEGV": lambda: _kill("SIGSEGV"),
    "SIGTERM": lambda: _kill("SIGTERM"),
    "SIGABRT": lambda: _kill("SIGABRT"),
    "SIGINT": lambda: _kill("SIGINT"),
    "Derived": lambda: _raise(Derived("x")),
    "KeyboardInterrupt": lambda: _raise(KeyboardInterrupt()),
    "MemoryError": lambda: _raise(MemoryError()),
    "result that cannot be pickled": threading.Lock,
    "exception that cannot be pickled": lambda: _raise(WithLock()),
}


def run(folder: str, end: str, key: str) -> str:
    """One try: count it, and end so, unless it is the last one of all."""
    file = Path(folder, key.encode().hex())
    with file.open("a") as tries:
        tries.write("x")
    if file.stat().st_size >= ENOUGH:
        return "returned"
    return ENDS[end]()


def _named(error: BaseException) -> str:
    names = [kind.__name__ for kind in type(error).__mro__]
    if "TaskCancelledError" in names:
        return "cancelled"
    if "WorkerCrashedError" in names:
        return "died"
    original = next((name for name in ORIGINALS if name in names), "")
    return f"raised {original}".strip() if "TaskError" in " ".join(names) else names[0]


def cases() -> Iterator[Case]:
    for end in ENDS:
        for retries in (-1, 0, 2):
            listed = ("False", "True", *(EXCEPTIONS if end == "Derived" else ()))
            for exceptions in listed:
                yield Case(end=end, max_retries=retries, retry_exceptions=exceptions)


def ask(
    start: Callable[[Case, str], Any], get: Callable[[Any], Any], report: Path, folder: Path
) -> None:
    """Run all cases at once, and write what has come of each as JSON."""
    started = [(case, start(case, str(folder))) for case in cases()]
    seen = {}
    for case, ref in started:
        try:
            outcome = str(get(ref))
        except BaseException as error:  # noqa: BLE001 - that is what is asked for
            outcome = _named(error)
        tries = Path(folder, case.key().encode().hex()).stat().st_size
        seen[case.key()] = asdict(Seen(tries=tries, outcome=outcome))
    report.write_text(json.dumps(seen, indent=1))
