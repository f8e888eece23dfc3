"""Checkpoints that were reported while another library still saved them (`report(after=)`).

A thread waits for the end of each save, in the order of the reports, and stages its files then. To
the agent the rank does not pass such a step before. If the save fails, the agent gives the step up
on all ranks, and the training goes on.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import TYPE_CHECKING, NamedTuple, cast

from trainrun._process.context import get_context
from trainrun._process.excepthook import KEPT_TEXT, describe
from trainrun.contract import messages, questions
from trainrun.errors import AgentLost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trainrun._process.session import Session

WAITS = ("result", "wait_until_finished", "wait")
"""Methods that wait for the end of a save: of futures, of orbax, of PyTorch."""
MUTE = ("is_alive", "returncode", "get_loop")
"""Attributes of threads and processes, whose wait does not raise if the save failed, and of
asyncio's futures, which no other thread can wait for."""


class PendingSave(NamedTuple):
    """A reported checkpoint whose save has not ended."""

    step: int
    directory: Path
    wait: Callable[[], object]
    """Waits for the end of the save; raises if it failed."""


def begin(now: Session, save: PendingSave) -> None:
    """Stage a checkpoint after its save and all earlier ones."""
    now.in_background(lambda: _finish(now, save))


def wait_of(after: object) -> Callable[[], object]:
    """Return what waits for the end of a save and raises if it failed. Raises TypeError."""
    after = getattr(after, "upload_completion", after)  # of PyTorch's AsyncSaveResponse
    owner = getattr(after, "__self__", after)
    if not any(hasattr(owner, name) for name in MUTE):
        candidates = [*(getattr(after, name, None) for name in WAITS), after]
        for wait in candidates:
            if callable(wait):
                return cast("Callable[[], object]", wait)
    raise TypeError(
        f"report(after=...): waiting for {after!r:.80} does not show whether the save succeeded; "
        "pass a future (of ThreadPoolExecutor.submit(), say), or a function that waits and raises "
        "if the save failed"
    )


def warn_of_empty(directory: Path, *, stacklevel: int) -> None:
    """Warn rank 0, where an empty directory is usually a forgotten save.

    As in Ray, ranks that do not save may report the same, empty, temporary directory.
    """
    if get_context().rank == 0:
        warnings.warn(
            f"report(checkpoint=): {directory} is empty, so rank 0 has no files for this step; if "
            "a save is still in progress, pass its future as after=",
            stacklevel=stacklevel + 1,
        )


def _finish(now: Session, save: PendingSave) -> None:
    try:
        save.wait()
    except BaseException as error:  # noqa: BLE001 - whatever ended the save
        text = describe(type(error), error)
        _give_up(now, save.step, f"the save of rank {get_context().rank} failed: {text}", error)
        return
    try:
        with now.reporting:
            saved = _staged(now, save)
    except AgentLost:
        return  # this process ends with its agent
    except Exception as error:  # noqa: BLE001 - only errors made at the call may end the training
        _give_up(now, save.step, str(error)[:KEPT_TEXT], error)
        return
    if now.connection is not None:
        now.connection.send_surely(messages.line_of(saved))


def _staged(now: Session, save: PendingSave) -> messages.Saved:
    step, directory = save.step, save.directory
    has_files = now.staging.check(directory, step)
    if not has_files or not now.under_agent:
        left = now.staging.forget(directory, step)
        if not has_files:
            warn_of_empty(directory, stacklevel=1)
        return messages.Saved(step=step, left=left)
    now.require_agent().ask(questions.AskToStage(step=step))
    staged = now.staging.take(directory, step)
    return messages.Saved(step=step, files=staged.name, left=staged.left, digest=staged.digest)


def _give_up(now: Session, step: int, why: str, error: BaseException) -> None:
    if now.connection is not None:
        now.connection.send_surely(messages.line_of(messages.SaveFailed(step=step, why=why)))
    lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    sys.stderr.write(f"{lines}trainrun: {messages.given_up(step, why)}\n")
