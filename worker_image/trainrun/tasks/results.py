"""What a program does with references: `get`, `wait`, `put`, `cancel`.

Layer: tasks. Names and defaults are those of Ray's core.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trainrun.tasks import arguments, keys
from trainrun.tasks.function import current
from trainrun.tasks.options import seconds
from trainrun.tasks.refs import ObjectRef
from trainrun.tasks.values import Folder, digest_of

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    key = keys.key_of_value(arguments.encoded("the value of tasks.put", told, set()))
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
