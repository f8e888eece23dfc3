"""`should_save` and `finish`: saving when a worker is about to be taken away, and the end."""

from __future__ import annotations

import time
from dataclasses import dataclass

from trainrun._process import session
from trainrun.contract import messages, questions
from trainrun.errors import AgentLost


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
