"""`should_save` and `finish`: saving when a worker is about to be taken away, and the end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from trainrun import session
from trainrun.connection import encode
from trainrun.errors import AgentLost

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    control = now.control
    if control is None:
        return None
    with now.counting:
        call, undecided = control.count_call()
    return _ask(call) if undecided else None


def finish() -> None:
    """Say that the training is complete, whatever `should_save()` has answered.

    Only needed where a script exits 0 after a SaveRequest although there is nothing left to do.
    Call it on every rank.
    """
    connection = session.current().connection
    if connection is not None:
        connection.send_surely(encode({"type": "finish"}))


def _ask(call: int) -> SaveRequest | None:
    try:
        reply = session.current().require_agent().ask({"type": "save", "call": call})
    except AgentLost:
        return None  # this process ends with its agent; nobody is left to save for
    request = reply["save"]
    if request is None:
        return None
    given = cast("Mapping[str, object]", request)
    left = cast("float | None", given["deadline"])
    return SaveRequest(
        reason=str(given["reason"]),
        writer_rank=cast("int", given["writer_rank"]),
        deadline=None if left is None else time.monotonic() + left,
    )
