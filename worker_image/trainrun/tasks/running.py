"""One try of a task in a process of its own: unpickle, call, pickle the results into files.

Layer: tasks. It reports its outcome in the file `end` of the try's folder. Without that file the
process has crashed, whatever its exit code.
"""

from __future__ import annotations

import base64
import importlib
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

from trainrun._process.excepthook import describe
from trainrun.tasks import values
from trainrun.tasks.calls import RetryExceptions
from trainrun.tasks.messages import ReadyTry
from trainrun.tasks.records import Finished, Output, Raised
from trainrun.tasks.values import Folder, Unpicklable

CALL, END, BEGUN = "call", "end", "begun"
"""Files of a try's folder: the call, its outcome, and when it was called."""
KEPT_TRACEBACK = 16 << 10
"""Characters kept of the end of a traceback."""

Role = Literal["program", "launcher", "task"]


_role: Role = "program"
_folder: Path | None = None
"""Folder of the try that runs in this process."""
_given_out: set[Path] = set()


def role() -> Role:
    """The role of this process. A `task` calls functions; a `launcher` only forks tasks."""
    return _role


def become(new: Role) -> None:
    """Set the role of this process."""
    global _role  # noqa: PLW0603 - of the process
    _role = new


def output_directory() -> Folder:
    """Return a new, empty folder for a task to fill and return. Do not change it afterwards."""
    made = Folder(tempfile.mkdtemp(prefix="output-", dir=_folder))
    made.chmod(0o755)
    _given_out.add(Path(made))
    return made


def run(ready: ReadyTry) -> None:
    """Run a try in this process, then end the process."""
    global _folder  # noqa: PLW0603 - of the process
    become("task")
    _folder = ready.folder
    _reseed()
    code = 1
    try:
        _write_end(ready.folder, _outcome(ready))
        code = 0
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException:  # noqa: BLE001 - a full disk, say: a crash; the run's log says why
        traceback.print_exc()
    finally:
        flush()
        os._exit(code)  # skip the exit handlers that the launcher registered


def flush() -> None:
    """Flush the output, if it still has a reader."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _outcome(ready: ReadyTry) -> Finished | Raised:
    (ready.folder / BEGUN).write_text(str(time.monotonic()))
    try:
        function = find(ready.order.function)
        value_of = cache(lambda *name: values.load_value(ready.values[name]))
        args, kwargs = values.load_arguments(ready.order.arguments, value_of)
    except Exception as error:  # noqa: BLE001 - whatever it is, it would come again
        return raised(error, before="it cannot be called in its own process: ")
    begun = time.monotonic()
    try:
        result = function(*args, **kwargs)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the program's
        return raised(error, ready.order.options.retry_exceptions)
    seconds = time.monotonic() - begun
    try:
        return Finished(outputs=_keep(ready, result), seconds=seconds)
    except Unpicklable as error:
        return raised(error)


def find(function: str) -> Callable[..., object]:
    """Return the function `module:qualname`, without its decorator. Raises LookupError."""
    module, _, name = function.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise LookupError(
            f"{module} has no {name} when a task imports it. Define it at the top of a module"
        )
    plain: Callable[..., object] = getattr(found, "__wrapped__", found)
    return plain


def _keep(ready: ReadyTry, result: object) -> tuple[Output, ...]:
    number = ready.order.options.num_returns
    results = (result,) if number == 1 else result
    if not isinstance(results, (tuple, list)) or len(results) != number:
        given = len(results) if isinstance(results, (tuple, list)) else type(result).__qualname__
        raise Unpicklable(f"the task has num_returns={number}, but returned {given}")
    return tuple(_keep_one(ready.folder / str(index), one) for index, one in enumerate(results))


def _keep_one(path: Path, result: object) -> Output:
    if isinstance(result, Path) and Path(result) in _given_out:
        return values.keep_folder(result, path)
    try:
        return values.keep_value(result, path)
    except Unpicklable as error:
        raise Unpicklable(f"its result {path.name} cannot be stored: {error}") from error.__cause__


def raised(error: BaseException, retried: RetryExceptions = False, *, before: str = "") -> Raised:
    """Describe an exception for the log."""
    where = error.__traceback__
    while where is not None and where.tb_frame.f_code.co_filename == __file__:
        where = where.tb_next  # skip our own frames
    lines = "".join(traceback.format_exception(type(error), error, where or error.__traceback__))
    return Raised(
        error=before + describe(type(error), error),
        traceback=lines[-KEPT_TRACEBACK:],
        pickled=_pickled(error),
        retriable=_is_listed(type(error), retried),
        cancelled=isinstance(error, KeyboardInterrupt),
    )


def _pickled(error: BaseException) -> str:
    try:
        data = pickle.dumps(error, protocol=values.PROTOCOL)
        if len(data) > values.INLINE or type(pickle.loads(data)) is not type(error):
            return ""
    except Exception:  # noqa: BLE001 - its constructor takes other arguments than it keeps, say
        return ""
    return base64.b64encode(data).decode()


def _is_listed(kind: type[BaseException], retried: RetryExceptions) -> bool:
    if isinstance(retried, bool):
        return retried and issubclass(kind, Exception)
    names = {name for base in kind.__mro__ if base is not object for name in _names_of(base)}
    return not names.isdisjoint(retried)


def _names_of(kind: type) -> tuple[str, ...]:
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    return kind.__name__, kind.__qualname__, f"{module}.{kind.__qualname__}"


def _write_end(folder: Path, end: Finished | Raised) -> None:
    unfinished = folder / f"{END}.new"
    unfinished.write_bytes(pickle.dumps(end, protocol=values.PROTOCOL))
    unfinished.replace(folder / END)


def _exit_code(error: SystemExit) -> int:
    """The exit code that Python itself would use."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


def _reseed() -> None:
    """Else a forked process draws the same numbers as its siblings. `random` reseeds itself."""
    numpy_random, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    with suppress(Exception):
        if numpy_random is not None:
            numpy_random.seed()
        if torch is not None:
            torch.default_generator.seed()
