"""`@tasks.task`: functions that a program calls with `.remote()`; `get`, `wait`, `put`, `cancel`.

Layer: tasks. Names and defaults are those of Ray core.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar, overload

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun.tasks import keys, running, values
from trainrun.tasks.calls import Call, ObjectRef, TaskOptions, changed, seconds
from trainrun.tasks.values import Folder, digest_of

if TYPE_CHECKING:
    from trainrun.tasks.program import Program  # imports the whole driver

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_NO_PROGRAM = {
    "program": "needs a running program. Call it in a function main, and start that with"
    ' tasks.run(main) below `if __name__ == "__main__":`',
    "launcher": "was called while a worker imports this module. Call it in main, and put"
    ' tasks.run(main) below `if __name__ == "__main__":`',
    "task": "was called inside a task. Tasks cannot call tasks: return the value, and"
    " make the next call in main",
}
"""The problem, by the role of the process."""


class _Process:
    program: Program | None = None
    equal: ClassVar[Counter[str]] = Counter()
    """Number of equal calls so far, by the key of the first one."""
    lock = threading.Lock()


def enter(program: Program) -> None:
    """Send all calls to this program from now on."""
    _Process.program, _Process.equal = program, Counter()


def leave() -> None:
    """The program is over."""
    _Process.program = None


def current(doing: str) -> Program:
    """The running program. Raises TrainRunError, naming `doing`, if there is none."""
    if _Process.program is None:
        raise TrainRunError(f"{doing} {_NO_PROGRAM[running.role()]}")
    return _Process.program


class TaskFunction(Generic[Parameters, Result]):
    """A function whose `.remote()` calls are retried and whose lost results are rebuilt."""

    __wrapped__: Callable[Parameters, Result]
    __qualname__: str

    def __init__(self, function: Callable[Parameters, Result], options: TaskOptions) -> None:
        functools.update_wrapper(self, function)
        self._options = options
        self._signature = inspect.signature(function)
        # Read now: a later edit of the file is not the code that runs.
        self._code = ""
        with suppress(OSError, SyntaxError):  # no source, e.g. typed into an interpreter
            self._code = keys.code_of(inspect.getsource(function), of_task=True)
        self._file = Path(inspect.getfile(function)).absolute()
        self._unstable: set[str] = set()
        """Types of arguments that another process may pickle differently."""

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Call the plain function in this process."""
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.__qualname__}>"

    def __reduce__(self) -> str:
        """Pickle by name, so that a task may be an argument."""
        return self.__qualname__

    def options(self, **changes: Any) -> TaskFunction[Parameters, Result]:
        """The same function with other options, for some of its calls.

        Raises InvalidSpec, which names each invalid option.
        """
        options = changed(self._options, self.__qualname__, changes)
        other = object.__new__(type(self))  # not by copy.copy, which pickles
        other.__dict__.update(self.__dict__, _options=options)
        return other

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Run it on some worker. Returns an ObjectRef at once; a list if `num_returns` is above 1.

        The task receives the values of all references in the arguments, at any depth. Raises
        InvalidSpec if an argument cannot be pickled, and TrainRunError outside `tasks.run`.
        """
        name, results = self.__qualname__, self._options.num_returns
        program = current(f"{name}.remote()")
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}.remote(): {error}") from None
        function = self._name_for_workers()
        shown = values.shown(name, bound)
        data, inputs = values.packed(name, bound)
        code = self._code_in_key()
        bound.apply_defaults()
        key = _key_of_next(
            functools.partial(keys.key_of_call, function, code, self._encoded(bound), results)
        )
        call = Call(
            key=key,
            function=function,
            arguments=data,
            inputs=inputs,
            options=self._options,
            shown=shown,
            code=_module_code(self.__module__, self._file),
        )
        program.call(call)
        refs = [ObjectRef(key, index) for index in range(results)]
        return refs if results > 1 else refs[0]

    def _name_for_workers(self) -> str:
        """Raises InvalidSpec if workers would import something else under this name."""
        found: Any = sys.modules[self.__module__]
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if getattr(found, "__wrapped__", found) is not self.__wrapped__:
            raise InvalidSpec(
                f"workers cannot find the task {self.__qualname__}: something else in module"
                f" {self.__module__} has this name. Give each task its own name there"
            )
        return f"{self.__module__}:{self.__qualname__}"

    def _code_in_key(self) -> str:
        if self._options.version:
            return f"version {self._options.version}"
        if not self._code:
            raise InvalidSpec(
                f"the source of {self.__qualname__} cannot be read, so nothing shows when its code"
                ' changes. Set a version: tasks.task(version="1")'
            )
        return self._code

    def _encoded(self, bound: inspect.BoundArguments) -> bytes:
        """The arguments as part of the key; warns once if another process may encode them
        differently."""
        name, unstable = self.__qualname__, self._unstable
        warned = bool(unstable)
        parts = [
            (each, values.encoded_argument(f"the argument {each} of {name}", value, unstable))
            for each, value in bound.arguments.items()
        ]
        if unstable and not warned:
            warnings.warn(
                f"{name} takes {', '.join(sorted(unstable))}: another process may pickle equal"
                " values differently and run this call again. Pass plain data, arrays or"
                " dataclasses so that results are found again",
                stacklevel=3,
            )
        return keys.encoded(parts, unstable)


def _key_of_next(of_call: Callable[[int], str]) -> str:
    """The key of the next equal call; `of_call` makes the key of the n-th one."""
    first = of_call(0)
    with _Process.lock:
        nth = _Process.equal[first]
        _Process.equal[first] += 1
    return of_call(nth) if nth else first


_module_code = functools.cache(keys.code_of_module)


@overload
def task(function: Callable[Parameters, Result], /) -> TaskFunction[Parameters, Result]: ...


@overload
def task(
    **options: Any,
) -> Callable[[Callable[Parameters, Result]], TaskFunction[Parameters, Result]]: ...


def task(function: Any = None, /, **options: Any) -> Any:
    """Make a function a task, as `@tasks.task` or with options, as `@tasks.task(max_retries=5)`.

    Options are those of TaskOptions; texts such as `timeout="10m"` and `memory="1Gi"` are fine.
    Raises InvalidSpec for an invalid option, and for a function that workers cannot import: define
    it at the top of a module, or as a static method of a class there.
    """
    if function is None:
        read = changed(
            TaskOptions(), "tasks.task", options
        )  # now, so that an error points at the decorator
        return lambda function: _task_of(function, read)
    return _task_of(function, TaskOptions())


def _task_of(function: Any, options: TaskOptions) -> TaskFunction[..., Any]:
    if not inspect.isfunction(function):
        remedy = (
            "put @staticmethod above @tasks.task"
            if isinstance(function, staticmethod)
            else "write a function around it"
        )
        raise InvalidSpec(f"tasks.task takes a function, not {function!r}: {remedy}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidSpec(
            f"tasks.task takes no async function and no generator, and {function.__qualname__} is"
            " one: return a value instead"
        )
    if "<" in function.__qualname__:  # <locals>, <lambda>
        raise InvalidSpec(
            f"workers cannot import {function.__qualname__}. Define it with `def` at the top of its"
            " module, and pass what it needs as arguments"
        )
    return TaskFunction(function, options)


def get(refs: ObjectRef | Sequence[ObjectRef], *, timeout: float | str | None = None) -> Any:
    """Wait for the value of a reference, or for a list of values.

    `timeout`: seconds, or a text such as "10m"; None: no limit. Raises GetTimeoutError after it.
    For the first reference without a value it raises TaskError, WorkerCrashedError,
    OutOfMemoryError, TaskTimeout, TaskCancelledError or ObjectLostError.
    """
    listed, limit = _refs("get", refs), _limit("get", timeout)
    values = current("tasks.get").get(listed, limit)
    return values[0] if isinstance(refs, ObjectRef) else values


def wait(
    refs: Sequence[ObjectRef], *, num_returns: int = 1, timeout: float | str | None = None
) -> tuple[list[ObjectRef], list[ObjectRef]]:
    """Wait until `num_returns` of these have ended, with a value or an error, or for `timeout`.

    Returns the ended ones, at most `num_returns`, and the rest, both in the order given.
    """
    listed, limit = _refs("wait", refs), _limit("wait", timeout)
    if not 1 <= num_returns <= len(listed):
        raise ValueError(
            f"tasks.wait: num_returns={num_returns} must be from 1 to {len(listed)}, the number"
            " of references"
        )
    if len(set(listed)) < len(listed):
        raise ValueError("tasks.wait: a reference is listed twice. List each one once")
    return current("tasks.wait").wait(listed, num_returns, limit)


def put(value: object) -> ObjectRef:
    """Store a value for tasks to take; equal values share one reference.

    No task can rebuild it: if it is lost, `get` raises ObjectLostError with the reason Put.
    """
    if isinstance(value, ObjectRef):
        raise TypeError("tasks.put: the value is already a reference. Pass it as it is")
    program = current("tasks.put")
    told = _files(value) if isinstance(value, Folder) else value
    key = keys.key_of_value(values.encoded_argument("the value of tasks.put", told, set()))
    program.put(key, value)
    return ObjectRef(key)


def cancel(ref: ObjectRef) -> None:
    """Cancel the task of this reference unless it has ended; `get` raises TaskCancelledError."""
    (listed,) = _refs("cancel", ref)
    current("tasks.cancel").cancel(listed)


def _files(folder: Folder) -> dict[str, str]:
    """Digests by relative path: the folder's own path differs each time."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): digest_of(path) for path in files}


def _limit(doing: str, timeout: float | str | None) -> float | None:
    if timeout is None or timeout == 0:
        return timeout
    try:
        return seconds(timeout)
    except (ValueError, TypeError):
        raise ValueError(
            f'tasks.{doing}: timeout={timeout!r} must be a text such as "10m", a number of seconds'
            " from 0, or None"
        ) from None


def _refs(doing: str, refs: Any) -> tuple[ObjectRef, ...]:
    listed = tuple(refs) if isinstance(refs, Iterable) else (refs,)
    for ref in listed:
        if not isinstance(ref, ObjectRef):
            raise TypeError(
                f"tasks.{doing} takes references, as .remote() and tasks.put return them, not"
                f" {type(ref).__name__}"
            )
    return listed
