"""Reports of a training loop to its run: steps, checkpoints, the end.

`should_save` reports when a worker is about to be taken away.
"""

from __future__ import annotations

import numbers
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from trainrun._process import pending_saves, session
from trainrun._process.checkpoint_handle import Checkpoint
from trainrun._process.pending_saves import PendingSave, wait_of, warn_of_empty
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


def staging_directory() -> Path:
    """Return a new empty directory on the worker's disk for the files of one checkpoint.

    `report(checkpoint=)` checks each file (0.2 ms) and moves the directory by a rename; it copies
    any other directory. A directory that is never reported is removed when the process exits.
    Raises StagingFailed.
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
    after: object | None = None,
) -> None:
    """Report that this rank has done a step, with metrics and optionally checkpoint files.

    Without files it never waits and does no network I/O. With files it waits only while the
    worker's disk already holds `checkpoint.maxPending` checkpoints that are not uploaded (with
    `uploadEvery` three more); the upload runs in the background, and a crash of the training does
    not stop it.

    A step's checkpoint is complete once each rank has reported its files or checkpoint=None, has
    reported a later step, or has exited with 0. Any subset of ranks may report files; readers see
    them as one directory. So call it on all ranks, or pass whole=True on the one that saves
    everything.

    Args:
        metrics: Numbers, strings and booleans by name; NaN and infinities are preserved. A metric
            over 4 KiB as JSON, or beyond the 64 KiB of a report, is left out with a warning that
            names it; the step and checkpoint still count.
        step: The optimizer step (or epoch) of these metrics and files, from 0. Steps with a
            checkpoint must strictly increase within an attempt.
        checkpoint: The directory with this rank's files, as a Checkpoint or a path; the script may
            change or remove it once the call returns. None, or an empty directory: this rank has no
            files for this step. If left out, files may still follow, and the checkpoint of the
            other ranks waits for them until this rank reports a later step or exits.
        whole: These files are the whole checkpoint: commit it without waiting for other ranks. If
            other ranks save into the same folder, call it only after a barrier of all of them.
        metadata: Data to read without the checkpoint's files: a JSON object of at most 64 KiB and
            16 levels, which `get_checkpoint().metadata` returns. A larger one is left out with a
            warning. If several ranks pass it, the lowest one with files counts.
        after: The end of a save that still writes into the directory: a future, what
            `async_save()` returns, or a function that waits and raises if the save failed. The call
            returns at once, and the files are staged then; report later steps as usual. If the save
            fails, no rank will have a checkpoint of this step, and the training goes on. After a
            SaveRequest the call waits for the save. A process that ends without an error waits too.

    Raises:
        TypeError: A metric has another type (names the key), the step is not an integer, the
            metadata is not a JSON object, or `after` cannot tell whether the save succeeded.
        ValueError: The step is out of order, or the directory cannot be stored.
        FileNotFoundError, NotADirectoryError: The directory does not exist, or is a file.
        StagingFailed: The worker's disk is full. If the script continues without reporting this
            step again, there will be no checkpoint of it.
        CheckpointUnfinished: A StagingFailed: this directory, or that of an earlier report, is
            still being written. Pass the future of its save as `after`.
        AgentLost: The agent has exited (only with a checkpoint; metrics are dropped silently).
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
            raise ValueError(f"report(step={step}, whole=True) requires checkpoint=")
        if metadata is not None:
            raise ValueError(f"report(step={step}, metadata=...) requires checkpoint=")
        if after is not None:
            raise ValueError(f"report(step={step}, after=...) requires checkpoint=")
        _report_plain(now, step, encoded, nothing=checkpoint is None)
        return
    content = _CheckpointContent(encoded, _encoded_metadata(metadata), whole)
    directory = _directory(checkpoint)
    if after is not None:
        _report_pending(now, content, PendingSave(step, directory, wait_of(after)))
        return
    with now.reporting:
        if now.staging.check(directory, step):
            _report_files(now, step, content, directory)
        else:
            _report_empty(now, step, encoded, directory)


class _CheckpointContent(NamedTuple):
    """Metrics and metadata of a checkpoint, as JSON."""

    metrics: str
    metadata: str
    whole: bool


def _encoded_metadata(metadata: Mapping[str, object] | None) -> str:
    text = metrics_.metadata_json(metadata) if metadata is not None else ""
    if len(text) <= metrics_.LONGEST_METADATA:
        return text
    warnings.warn(
        f"report(): metadata left out: it takes {len(text)} bytes as JSON, more than "
        f"{metrics_.LONGEST_METADATA}; save large data as a file of the checkpoint",
        stacklevel=3,
    )
    return ""


def _warn_of(left_out: list[str]) -> None:
    named = ", ".join(f"{name:.60}" for name in left_out[:5])
    more = f" and {len(left_out) - 5} more" if len(left_out) > 5 else ""
    warnings.warn(
        f"report(): metrics left out: {named}{more}. A metric may take {metrics_.LONGEST_METRIC} "
        f"bytes as JSON, all metrics of a report {metrics_.LONGEST_METRICS}; save large data as a "
        "file of the checkpoint",
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
        # A later step from another thread must not overtake the files of this one: to the agent,
        # it means that this rank has no more files for this step.
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
    # Rename first, then send: the agent ignores an unannounced directory, so it never sees half a
    # part.
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


def _report_pending(now: Session, content: _CheckpointContent, save: PendingSave) -> None:
    step = save.step
    connection = now.require_agent() if now.under_agent else None
    now.staging.check_new(save.directory, step)
    with now.reporting:  # for as long as the files of an earlier step wait for room
        with now.ordering:
            _check_order(now, step, whole=content.whole)
            now.highest_step = now.checkpoint_step = step
            if connection is not None:
                line = messages.report_line(
                    step,
                    content.metrics,
                    whole=content.whole,
                    metadata=content.metadata,
                    pending=True,
                )
                connection.send_surely(line)
        pending_saves.begin(now, save)
    if now.asked_to_save:  # what is trained meanwhile would be lost
        now.await_background()


def _report_empty(now: Session, step: int, metrics: str, directory: Path) -> None:
    warn_of_empty(directory, stacklevel=3)
    with _reporting_unstaged(now.connection, step):
        left = now.staging.forget(directory, step)
    _report_plain(now, step, metrics, nothing=True, left=left)


@contextmanager
def _reporting_unstaged(connection: Connection | None, step: int) -> Iterator[None]:
    """If staging fails, report that: a script that continues must not commit a checkpoint without
    this rank's part."""
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
        raise ValueError(f"step must be {LARGEST_INTEGER} or less, got a number of {bits} bits")
    return step


def _check_order(now: Session, step: int, *, whole: bool) -> None:
    if step <= now.checkpoint_step:
        raise ValueError(
            f"report(step={step}, checkpoint=...): this rank has already reported files for step "
            f"{now.checkpoint_step}, and steps with a checkpoint must strictly increase; count "
            "steps over the whole run, and continue from get_checkpoint().step + 1"
        )
    if step < now.highest_step:
        raise ValueError(
            f"report(step={step}, checkpoint=...): this rank has already reported step "
            f"{now.highest_step}, so its part of step {step} is closed; report a checkpoint before "
            "any later step"
        )
    if step == now.empty_step and not whole:
        raise ValueError(
            f"report(step={step}, checkpoint=...): this rank has already reported None, or an "
            f"empty directory, for step {step}, which means that it has no files for it; leave out "
            "that call, or make it without checkpoint="
        )


def _directory(checkpoint: Directory) -> Path:
    if isinstance(checkpoint, Checkpoint):
        return checkpoint.local_directory()
    return Path(checkpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRequest:
    """A request to save now; true in a condition."""

    reason: str
    """Why, for instance `SIGTERM`."""
    writer_rank: int
    """The lowest rank whose worker is not under notice: it should save what any rank could save."""
    deadline: float | None = None
    """When the worker may be taken away, on the clock of `time.monotonic()`; None: not known."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until `deadline`, 0 or more; None: not known."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


def should_save() -> SaveRequest | None:
    """Return a SaveRequest if all ranks should save now, else None.

    Call it at the same point of each step on all ranks: **its n-th call in an attempt returns the
    same on every rank**, so that collectives inside the save match. After the first request all
    further calls return one. Once all ranks have reported the requested checkpoint, the agents stop
    the processes; the script may continue or exit. If it exits 0 without `finish()`, the run is not
    finished and continues later.

    An ordinary call takes microseconds; it waits only while the ranks agree on a save. Always None
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
    """Report that the training is complete, whatever `should_save()` returned.

    Only needed if a script exits 0 after a SaveRequest although nothing is left to do. Call it on
    all ranks.
    """
    connection = session.current().connection
    if connection is not None:
        connection.send_surely(messages.line_of(messages.Finish()))


def _ask(call: int) -> SaveRequest | None:
    try:
        save = session.current().require_agent().ask(questions.AskSave(call=call)).save
    except AgentLost:
        return None  # this process ends with its agent, so a save would be pointless
    if save is None:
        return None
    session.current().asked_to_save = True
    return SaveRequest(
        reason=save.reason,
        writer_rank=save.writer_rank,
        deadline=None if save.deadline is None else time.monotonic() + save.deadline,
    )
