"""Turns the end of a try into records, and explains why there is no result.

Layer: tasks, pure.
"""

from __future__ import annotations

from dataclasses import replace

from trainrun.tasks import (
    LostReason,
    ObjectLostError,
    OutOfMemoryError,
    TaskCancelledError,
    TaskError,
    TaskTimeout,
    TaskUnschedulableError,
    WorkerCrashedError,
)
from trainrun.tasks.calls import Call
from trainrun.tasks.records import (
    Cancelled,
    Changed,
    Crashed,
    Done,
    End,
    Failed,
    FailedReason,
    Finished,
    InputMissing,
    Raised,
    Record,
    Stopped,
    TaskRun,
)
from trainrun.tasks.replayed_state import Entry

_BY_HAND = "Run `trainrun tasks rebuild {key}`, and start the program again"
_REMEDIES = {
    "OutOfMemory": "Raise `memory`, or give each task less work",
    "TimedOut": "Raise `timeout`, or give each task less work",
    "WorkerLost": "Raise max_retries, or find out why the worker was lost",
}
_LOST: dict[LostReason, tuple[str, str]] = {
    "Put": (
        "it comes from tasks.put, so no task makes it",
        "Make the value in a task instead: the result of a task can be rebuilt",
    ),
    "Unknown": (
        "this program has not called the task that makes it",
        "Call that task before its result is used",
    ),
    "LineageDisabled": ("lineage is off", 'Use tasks.run(..., lineage="on")'),
    "LineageEvicted": (
        "its arguments were dropped to stay below lineage_limit",
        "Raise lineage_limit in tasks.run, and start the program again",
    ),
    "RetriesDisabled": ("it has max_retries=0", "Set max_retries to 1 or more"),
    "ReconstructionsExceeded": (
        "it was rebuilt as often as max_reconstructions allows",
        "Raise max_reconstructions, or find out what deletes its objects",
    ),
    "Cancelled": ("it was cancelled", _BY_HAND),
    "OutputChanged": (
        'its rebuild gave different content and on_change is "fail"',
        'Make the function deterministic, or set on_change="accept"',
    ),
}

MISREAD = 3
"""Tries per input that may miss it before they cost a retry. Every input may get lost once; one
that each search finds points to a fault of the worker and would be retried without end."""


def name_of(shown: str, key: str) -> str:
    """The name of a call in messages."""
    return f"{shown} (key {key[:12]})"


def judge(call: Call, entry: Entry, worker: int, run: TaskRun, end: End) -> tuple[Record, ...]:
    """The records for this end of the current try."""
    match end:
        case Finished():
            done = Done(
                key=run.key,
                generation=run.generation,
                number=run.number,
                worker=worker,
                seconds=end.seconds,
                outputs=end.outputs,
            )
            return (*_changed(entry, run, end), done)
        case Crashed():
            return (_counted(call, entry, end.reason, end.message),)
        case Raised(cancelled=True):
            return (Cancelled(key=run.key),)
        case Raised():
            return (_raised(call, entry, end),)
        case InputMissing():
            missing = f"result {end.index} of {end.key[:12]} is {end.why.lower()}"
            if entry.misread < MISREAD * len(call.inputs):
                return (_failed(call, entry, "InputMissing", missing),)
            where = f"{missing} for worker {worker}, although each search found it"
            return (_counted(call, entry, "InputMissing", where),)
        case Stopped():
            return (_failed(call, entry, "Stopped", "stopped before it ended"),)


def overspent(call: Call, entry: Entry) -> Failed | None:
    """The final record of a task whose last retry was lost with its worker."""
    limit = call.options.max_retries
    if entry.settled or limit < 0 or entry.spent <= limit:
        return None
    message = _message(call, entry.spent, "its worker was lost", _REMEDIES["WorkerLost"])
    return replace(_failed(call, entry, "WorkerLost", message), final=True)


def error_of(failed: Failed) -> TaskError | WorkerCrashedError:
    """The error for readers of a task that failed for good."""
    if failed.reason == "Raised":
        return TaskError(f"{failed.message}\n\n{failed.traceback}".rstrip(), key=failed.key)
    made = {"OutOfMemory": OutOfMemoryError, "TimedOut": TaskTimeout}
    return made.get(failed.reason, WorkerCrashedError)(failed.message, key=failed.key)


def cancelled_error(name: str, key: str) -> TaskCancelledError:
    """The error for readers of a cancelled task."""
    remedy = _BY_HAND.format(key=key[:12])
    return TaskCancelledError(f"{name} was cancelled. {remedy}.", key=key)


def lost_error(reason: LostReason, key: str, name: str, wanted: str = "") -> ObjectLostError:
    """The error for a key that cannot be rebuilt; `wanted`: name of the call that needs it."""
    because, remedy = _LOST[reason]
    if wanted:
        text = f"{wanted} cannot be rebuilt: the result of {name} is also lost, and {because}"
    else:
        text = f"The result of {name} is lost, and {because}"
    return ObjectLostError(f"{text}. {remedy.format(key=key[:12])}.", key=key, reason=reason)


def unschedulable(call: Call, sizes: set[tuple[float, int]]) -> TaskUnschedulableError:
    """The error for readers of a task that is too large for every worker."""
    name = name_of(call.shown or call.function, call.key)
    needs = f"cpus={call.options.cpus:g}, gpus={call.options.gpus}"
    have = ", ".join(sorted(f"{cpus:g} CPUs and {gpus} GPUs" for cpus, gpus in sizes))
    text = f"{name} needs {needs}, but no worker is that large: they have {have}."
    return TaskUnschedulableError(
        f"{text} Lower cpus or gpus, or use larger workers.", key=call.key
    )


def _changed(entry: Entry, run: TaskRun, end: Finished) -> list[Changed]:
    """Placed before Done, so that it is known when Done is applied."""
    pairs = enumerate(zip(entry.outputs, end.outputs, strict=False))
    others = [index for index, (old, new) in pairs if old.digest != new.digest]
    return [Changed(key=run.key, generation=run.generation, index=index) for index in others[:1]]


def _counted(call: Call, entry: Entry, reason: FailedReason, what: str) -> Failed:
    """The record of a try that costs a retry, if one is left."""
    final = 0 <= call.options.max_retries <= entry.spent
    otherwise = "See its output, and raise max_retries if another try may succeed"
    remedy = _REMEDIES.get(reason, otherwise) if final else "It runs again"
    message = _message(call, entry.spent + 1, what, remedy)
    return replace(_failed(call, entry, reason, message), counted=True, final=final)


def _raised(call: Call, entry: Entry, end: Raised) -> Failed:
    if end.retriable:
        failed = _counted(call, entry, "Raised", f"raised {end.error}")
    else:
        remedy = "Only exceptions listed in retry_exceptions are retried"
        message = _message(call, entry.spent + 1, f"raised {end.error}", remedy)
        failed = replace(_failed(call, entry, "Raised", message), final=True)
    return replace(failed, traceback=end.traceback, error=end.pickled) if failed.final else failed


def _failed(call: Call, entry: Entry, reason: FailedReason, message: str) -> Failed:
    """The record of a try that costs nothing."""
    key, number = call.key, entry.number
    return Failed(key=key, number=number, reason=reason, message=message, counted=False)


def _message(call: Call, tries: int, what: str, remedy: str) -> str:
    limit = call.options.max_retries
    of = f" of {limit + 1}" if limit >= 0 else ""
    who = name_of(call.shown or call.function, call.key)
    return f"{who} failed on try {tries}{of}: {what}. {remedy}."
