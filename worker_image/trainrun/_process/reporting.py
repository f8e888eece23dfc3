"""What a training loop tells its run: steps, checkpoints, long sections, a save on notice, the end.

A worker that is about to be taken away is heard of by `should_save`.
"""

from __future__ import annotations

import itertools
import math
import numbers
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from trainrun._process import session
from trainrun._process.checkpoint_handle import Checkpoint
from trainrun._process.context import get_context
from trainrun.contract import messages, questions
from trainrun.contract import metrics as metrics_
from trainrun.contract.wire import LARGEST_INTEGER
from trainrun.errors import AgentLost, StagingFailed

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from trainrun._process.connection import Connection
    from trainrun._process.session import Session
    from trainrun._process.staging import Staging

Directory: TypeAlias = "Checkpoint | os.PathLike[str] | str"
_numbers = itertools.count(1)
"""Of long sections."""


def staging_directory() -> Path:
    """Return a new empty directory on the worker's disk for the files of one checkpoint.

    `report(checkpoint=)` looks at each file (0.2 ms) and renames it away; any other directory is
    copied. One that is never reported goes with the process. Raises StagingFailed.
    """
    now = session.current()
    now.check_left()
    return now.staging.new_directory()


def report(
    metrics: Mapping[str, object] | None = None,
    *,
    step: int,
    checkpoint: Directory | EllipsisType | None = ...,
    whole: bool = False,
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Tell the run that this rank has done a step, with metrics and perhaps checkpoint files.

    Without files it never waits and does no network I/O. With files it waits only where the
    worker's disk already holds `checkpoint.maxPending` checkpoints that are not uploaded yet; the
    upload itself runs in the background, and a crash of the training does not end it.

    A checkpoint of a step is complete once every rank has brought its files or checkpoint=None, has
    reported a later step or has ended with 0; any subset of ranks may bring files, which together
    are one directory when read. So call it on every rank, or say whole=True on the one that saves
    everything.

    Args:
        metrics: Numbers, strings and booleans by name; NaN and infinities survive. One that takes
            more than 4 KiB as JSON, or finds no room in the 64 KiB of a report, is left out with a
            warning that names it; step and checkpoint are taken all the same.
        step: The optimizer step (or epoch) that these metrics and files are of, from 0. Steps with
            a checkpoint grow strictly within an attempt.
        checkpoint: The directory with this rank's files, as a Checkpoint or a path; it is free to
            be changed or removed when the call returns. None, or an empty one, says that this rank
            has none for this step. Left out, it says neither: files may follow, and a checkpoint
            of the others waits for them until this rank reports a later step or ends.
        whole: These files are the whole checkpoint: commit it without waiting for other ranks. Of
            a folder that other ranks save into, only behind a barrier of all of them.
        metadata: What is to be known of the checkpoint without reading its files: a JSON object of
            at most 64 KiB and 16 levels, which `get_checkpoint().metadata` returns. A larger one is
            left out with a warning. Of several ranks' it is the lowest one's that brings files.

    Raises:
        TypeError: A metric is none of these (names the key), the step is no integer, or the
            metadata is no JSON object.
        ValueError: A step out of order, or a directory that cannot be stored.
        FileNotFoundError, NotADirectoryError: The directory is none.
        StagingFailed: The worker's disk is full. Where the script goes on without reporting this
            step again, there will be no checkpoint of it.
        CheckpointUnfinished: A StagingFailed: the directory is still being written, or that of an
            earlier report was. Wait for the end of a save, then report it.
        AgentLost: The agent has gone (only with a checkpoint; metrics are dropped silently).
    """
    now = session.current()
    now.check_left()
    step = _checked_step(step)
    left_out: list[str] = []
    encoded = metrics_.to_json(metrics, left_out.append)
    if left_out:
        _warn_of(left_out)
    if checkpoint is None or isinstance(checkpoint, EllipsisType):
        if whole:
            raise ValueError(f"report(step={step}, whole=True) without checkpoint= says nothing")
        if metadata is not None:
            raise ValueError(f"report(step={step}, metadata=...) without checkpoint= says nothing")
        _report_plain(now, step, encoded, nothing=checkpoint is None)
        return
    content = _CheckpointContent(encoded, _encoded_metadata(metadata), whole)
    directory = _directory(checkpoint)
    with now.reporting:
        if now.staging.check(directory, step):
            _report_files(now, step, content, directory)
        else:
            _report_empty(now, step, encoded, directory)


class _CheckpointContent(NamedTuple):
    """What is said with the files of a checkpoint, as JSON."""

    metrics: str
    metadata: str
    whole: bool


def _encoded_metadata(metadata: Mapping[str, object] | None) -> str:
    text = metrics_.metadata_json(metadata) if metadata is not None else ""
    if len(text) <= metrics_.LONGEST_METADATA:
        return text
    warnings.warn(
        f"report(): metadata left out: it takes {len(text)} bytes as JSON, more than "
        f"{metrics_.LONGEST_METADATA}; save what is larger as a file of the checkpoint",
        stacklevel=3,
    )
    return ""


def _warn_of(left_out: list[str]) -> None:
    named = ", ".join(f"{name:.60}" for name in left_out[:5])
    more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
    warnings.warn(
        f"report(): metrics left out: {named}{more}. A metric takes at most "
        f"{metrics_.LONGEST_METRIC} bytes as JSON, all of a report {metrics_.LONGEST_METRICS}; "
        "save what is larger as a file of the checkpoint",
        stacklevel=3,
    )


def _report_plain(
    now: Session, step: int, metrics: str, *, nothing: bool = False, left: str = ""
) -> None:
    with now.ordering:
        now.highest_step = max(now.highest_step, step)
        if nothing:
            now.empty_step = max(now.empty_step, step)
        if now.connection is not None:
            now.connection.send(messages.report_line(step, metrics, nothing=nothing, left=left))


def _report_files(now: Session, step: int, content: _CheckpointContent, directory: Path) -> None:
    connection = now.require_agent() if now.under_agent else None
    with now.ordering:
        _check_order(now, step, whole=content.whole)
        # A later step that another thread reports must not overtake the files of this one: the
        # agent takes it as "this rank brings nothing more for this step".
        if connection is not None:
            connection.hold_back()
    if connection is None:
        now.staging.forget(directory, step)
    else:
        try:
            _hand_over(connection, now.staging, step, content, directory)
        finally:
            connection.let_go()
    with now.ordering:
        now.highest_step, now.checkpoint_step = max(now.highest_step, step), step


def _hand_over(
    connection: Connection,
    staging: Staging,
    step: int,
    content: _CheckpointContent,
    directory: Path,
) -> None:
    connection.ask(questions.AskToStage(step=step))
    # Rename first, message second: an unannounced directory is ignored, never half a part.
    with _reporting_unstaged(connection, step):
        staged = staging.take(directory, step)
    line = messages.report_line(
        step,
        content.metrics,
        files=staged.name,
        whole=content.whole,
        metadata=content.metadata,
        left=staged.left,
        digest=staged.digest,
    )
    connection.send_surely(line)


def _report_empty(now: Session, step: int, metrics: str, directory: Path) -> None:
    # As in Ray, ranks that do not save may report the same, empty, temporary directory. Rank 0
    # is told, once: there it is usually a forgotten save.
    if get_context().rank == 0:
        warnings.warn(
            f"report(checkpoint=): {directory} is empty, so rank 0 brings no files for this step; "
            "where a save is under way, report when it has ended",
            stacklevel=3,
        )
    with _reporting_unstaged(now.connection, step):
        left = now.staging.forget(directory, step)
    _report_plain(now, step, metrics, nothing=True, left=left)


@contextmanager
def _reporting_unstaged(connection: Connection | None, step: int) -> Iterator[None]:
    """A script that goes on without this rank's part must not make a checkpoint without it."""
    try:
        yield
    except StagingFailed:
        if connection is not None:
            connection.send_surely(messages.line_of(messages.Unstaged(step=step)))
        raise


def _checked_step(step: object) -> int:
    if type(step) is not int:  # first the usual case: the check below is slower
        if isinstance(step, bool) or not isinstance(step, numbers.Integral):
            raise TypeError(f"step must be an integer, got {step!r:.80} ({type(step).__name__})")
        step = int(step)
    if step < 0:
        raise ValueError(f"step must be 0 or more, got {step}")
    if step > LARGEST_INTEGER:
        bits = step.bit_length()
        raise ValueError(f"step must be {LARGEST_INTEGER} or less, got one of {bits} bits")
    return step


def _check_order(now: Session, step: int, *, whole: bool) -> None:
    if step <= now.checkpoint_step:
        raise ValueError(
            f"report(step={step}, checkpoint=...): this rank has brought files for step "
            f"{now.checkpoint_step} already, and steps with a checkpoint grow strictly; count "
            "steps over the whole run, and go on from get_checkpoint().step + 1"
        )
    if step < now.highest_step:
        raise ValueError(
            f"report(step={step}, checkpoint=...): this rank has reported step "
            f"{now.highest_step} already, so its part of step {step} is closed; report a "
            "checkpoint before any later step"
        )
    if step == now.empty_step and not whole:
        raise ValueError(
            f"report(step={step}, checkpoint=...): this rank has reported None, or an empty "
            f"directory, for step {step} already, which says that it has no files for it; leave "
            "that call out, or make it without checkpoint="
        )


def _directory(checkpoint: Directory) -> Path:
    if isinstance(checkpoint, Checkpoint):
        return checkpoint.local_directory()
    return Path(checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequest:
    """Save now: true in a condition."""

    reason: str
    """Why, for instance `SIGTERM`."""
    writer_rank: int
    """The lowest rank whose worker is not under notice: the one to save what any rank could."""
    deadline: float | None = None
    """When the worker may be gone, on the clock of `time.monotonic()`; None: not known."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until `deadline`, not below 0; None: not known."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


def should_save() -> SaveRequest | None:
    """Return a SaveRequest where all ranks are to save now, else None.

    Call it at the same point of every step on every rank: **its n-th call in an attempt gives the
    same answer on every rank**, so that collectives inside the save match. Once the answer is a
    request it stays one. When every rank has reported the asked-for checkpoint the agents stop the
    processes; the script may go on or exit. If it exits 0 without `finish()`, the run is to be
    continued later; it has not finished.

    An ordinary call costs microseconds; it waits only while the ranks agree on a save. Always None
    without an agent.
    """
    now = session.current()
    calls = now.calls
    if calls is None:
        return None
    with now.counting:
        call, undecided = calls.count_call()
    return _ask(call) if undecided else None


def finish() -> None:
    """Say that the training is complete, whatever `should_save()` has answered.

    Only needed where a script exits 0 after a SaveRequest although there is nothing left to do.
    Call it on every rank.
    """
    connection = session.current().connection
    if connection is not None:
        connection.send_surely(messages.line_of(messages.Finish()))


def _ask(call: int) -> SaveRequest | None:
    try:
        save = session.current().require_agent().ask(questions.AskSave(call=call)).save
    except AgentLost:
        return None  # this process ends with its agent; nobody is left to save for
    if save is None:
        return None
    return SaveRequest(
        reason=save.reason,
        writer_rank=save.writer_rank,
        deadline=None if save.deadline is None else time.monotonic() + save.deadline,
    )


@contextmanager
def long_section(name: str, *, timeout: float | timedelta) -> Iterator[None]:
    """Say that this rank is about to do something long in which no step ends.

        with trainrun.long_section("evaluate", timeout=1800):
            evaluate(model)

    While any rank is in one, `health.progressTimeout` and `health.firstStepTimeout` do not apply to
    the run; they count anew from its end. A rank that is still in it after `timeout` counts as
    hung, where one of these is set. Sections may be nested. Without an agent nothing happens.

    Args:
        name: What it is called in messages, at most 100 characters.
        timeout: Seconds, or a timedelta, that it may take at most.

    Raises:
        TypeError: The name is no text, or the timeout no number.
        ValueError: The name is empty or too long, or the timeout is not above 0 or not finite.
    """
    begun = messages.SectionBegun(
        number=next(_numbers), name=_checked_name(name), seconds=_checked_seconds(timeout)
    )
    connection = session.current().connection
    if connection is not None:
        connection.send_surely(messages.line_of(begun))
    try:
        yield
    finally:
        if connection is not None:
            connection.send_surely(messages.line_of(messages.SectionEnded(number=begun.number)))


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"long_section(): the name is a text, not {type(name).__name__}")
    if not 0 < len(name) <= messages.SECTION_WIDTH:
        raise ValueError(
            f"long_section(): the name has 1 to {messages.SECTION_WIDTH} characters, "
            f"not {len(name)}"
        )
    return name


def _checked_seconds(timeout: object) -> float:
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(
            f"long_section(): timeout= is a number of seconds or a timedelta, got {timeout!r:.80}"
        )
    if not (math.isfinite(timeout) and 0 < timeout <= messages.LONGEST_SECTION):
        raise ValueError(f"long_section(): timeout={timeout!r:.80} must be above 0 and finite")
    return float(timeout)
