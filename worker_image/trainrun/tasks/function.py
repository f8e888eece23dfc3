"""`@tasks.task`: functions that a program calls by `.remote()`; `get`, `wait`, `put`, `cancel`.

Layer: tasks. Names and defaults are those of Ray's core.
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
    from trainrun.tasks.program import Program  # costs what the driver does

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_NO_PROGRAM = {
    "program": "needs a running program. Call it in a function main, and start that by"
    ' tasks.run(main) below `if __name__ == "__main__":`',
    "launcher": "was called while a worker imports this module. Call it in main, and put"
    ' tasks.run(main) below `if __name__ == "__main__":`',
    "task": "was called inside of a task. Tasks cannot call tasks: return the value, and"
    " make the next call from main",
}
"""What is wrong, by the role of the process."""


class _Process:
    program: Program | None = None
    equal: ClassVar[Counter[str]] = Counter()
    """Calls so far, by the key of the first of those that are equal."""
    lock = threading.Lock()


def enter(program: Program) -> None:
    """From now on calls go to this program."""
    _Process.program, _Process.equal = program, Counter()


def leave() -> None:
    """The program is over."""
    _Process.program = None


def current(doing: str) -> Program:
    """The running program; raises TrainRunError where there is none. `doing` is for its message."""
    if _Process.program is None:
        raise TrainRunError(f"{doing} {_NO_PROGRAM[running.role()]}")
    return _Process.program


class TaskFunction(Generic[Parameters, Result]):
    """A function whose calls by `.remote()` are retried, and whose lost results are made again."""

    __wrapped__: Callable[Parameters, Result]
    __qualname__: str

    def __init__(self, function: Callable[Parameters, Result], options: TaskOptions) -> None:
        functools.update_wrapper(self, function)
        self._options = options
        self._signature = inspect.signature(function)
        # Now: what is edited while the program runs is not what runs.
        self._code = ""
        with suppress(OSError, SyntaxError):  # typed into an interpreter, or without its source
            self._code = keys.code_of(inspect.getsource(function), of_task=True)
        self._file = Path(inspect.getfile(function)).absolute()
        self._unstable: set[str] = set()
        """Types of arguments that another process may pickle otherwise."""

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        """Run it right here, as the plain function."""
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.__qualname__}>"

    def __reduce__(self) -> str:
        """Pickled by its name, so that it may be an argument."""
        return self.__qualname__

    def options(self, **changes: Any) -> TaskFunction[Parameters, Result]:
        """The same function with other options, for some of its calls.

        Raises InvalidSpec, which names each option that cannot be used.
        """
        options = changed(self._options, self.__qualname__, changes)
        other = object.__new__(type(self))  # not by copy.copy, which pickles
        other.__dict__.update(self.__dict__, _options=options)
        return other

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Have it run somewhere; returns an ObjectRef at once, with `num_returns` above 1 a list.

        References in the arguments, however deep, are values in the task. Raises InvalidSpec where
        an argument cannot be pickled, and TrainRunError outside of `tasks.run`.
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
        """Raises InvalidSpec where they would find something else."""
        found: Any = sys.modules[self.__module__]
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if getattr(found, "__wrapped__", found) is not self.__wrapped__:
            raise InvalidSpec(
                f"workers cannot find it: something else has the name {self.__qualname__} in the"
                f" module {self.__module__}. Give each task a name of its own there"
            )
        return f"{self.__module__}:{self.__qualname__}"

    def _code_in_key(self) -> str:
        if self._options.version:
            return f"version {self._options.version}"
        if not self._code:
            raise InvalidSpec(
                f"the source of {self.__qualname__} cannot be read, so nothing shows when its code"
                ' changes. Name it by tasks.task(version="1")'
            )
        return self._code

    def _encoded(self, bound: inspect.BoundArguments) -> bytes:
        """The arguments in the key; warns once where they may be encoded otherwise next time."""
        name, unstable = self.__qualname__, self._unstable
        warned = bool(unstable)
        parts = [
            (each, values.encoded_argument(f"the argument {each} of {name}", value, unstable))
            for each, value in bound.arguments.items()
        ]
        if unstable and not warned:
            warnings.warn(
                f"{name} takes {', '.join(sorted(unstable))}: another process may pickle"
                " equal values of it otherwise, and would then run this call again. Pass plain"
                " data, arrays or dataclasses where results must be found again",
                stacklevel=3,
            )
        return keys.encoded(parts, unstable)


def _key_of_next(of_call: Callable[[int], str]) -> str:
    """The key of the next one of equal calls; `of_call` makes that of the n-th."""
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

    Options are those of TaskOptions; `timeout="10m"` and `memory="1Gi"` may be written so. Raises
    InvalidSpec, which names each option that cannot be used, and for a function that workers could
    not find: it must stand at the top of its module, or in a class as a static function.
    """
    if function is None:
        read = changed(TaskOptions(), "tasks.task", options)  # where they stand
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
            f"tasks.task takes no async function and no generator, as {function.__qualname__} is:"
            " return a value"
        )
    if "<" in function.__qualname__:  # <locals>, <lambda>
        raise InvalidSpec(
            f"workers cannot find {function.__qualname__}. Define it by `def` at the top of its"
            " module, and pass what it needs as arguments"
        )
    return TaskFunction(function, options)


def get(refs: ObjectRef | Sequence[ObjectRef], *, timeout: float | str | None = None) -> Any:
    """The value of a reference, or a list of those of several; waits for them.

    `timeout`: seconds, or a text such as "10m"; None: no limit. Raises GetTimeoutError after it,
    and for the first that has none: TaskError, WorkerCrashedError, OutOfMemoryError, TaskTimeout,
    TaskCancelledError or ObjectLostError.
    """
    listed, limit = _refs("get", refs), _limit("get", timeout)
    values = current("tasks.get").get(listed, limit)
    return values[0] if isinstance(refs, ObjectRef) else values


def wait(
    refs: Sequence[ObjectRef], *, num_returns: int = 1, timeout: float | str | None = None
) -> tuple[list[ObjectRef], list[ObjectRef]]:
    """Wait until `num_returns` of these have ended, well or badly, or for `timeout`.

    Returns those that have, at most `num_returns`, and the rest, each in the order given.
    """
    listed, limit = _refs("wait", refs), _limit("wait", timeout)
    if not 1 <= num_returns <= len(listed):
        raise ValueError(
            f"tasks.wait: num_returns={num_returns} must be from 1 to {len(listed)}, the number"
            " of references"
        )
    if len(set(listed)) < len(listed):
        raise ValueError("tasks.wait: a reference stands there twice. Give each once")
    return current("tasks.wait").wait(listed, num_returns, limit)


def put(value: object) -> ObjectRef:
    """Keep a value for tasks to take; equal values have one reference.

    Nobody can make it again: where it is lost, `get` raises ObjectLostError with the reason Put.
    """
    if isinstance(value, ObjectRef):
        raise TypeError("tasks.put: this is a reference already. Pass it on as it is")
    program = current("tasks.put")
    told = _files(value) if isinstance(value, Folder) else value
    key = keys.key_of_value(values.encoded_argument("the value of tasks.put", told, set()))
    program.put(key, value)
    return ObjectRef(key)


def cancel(ref: ObjectRef) -> None:
    """End the task of this reference, unless it has ended: `get` raises TaskCancelledError."""
    (listed,) = _refs("cancel", ref)
    current("tasks.cancel").cancel(listed)


def _files(folder: Folder) -> dict[str, str]:
    """Its path is another one each time."""
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
