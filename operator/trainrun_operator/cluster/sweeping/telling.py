"""The events of a sweep: what its user has to know, once.

Layer: cluster. They follow from the log: what stood there when we began was told by who led before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.core.run.plan import Event
from trainrun_operator.core.sweep.observation import CLERK_REFUSED, ClerkUnknown
from trainrun_operator.core.sweep.trial import displaced

Raw = Mapping[str, Any]
Record = Callable[[Raw, Event], None]


class SweepTelling:
    """Of one sweep."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._told: SweepView | None = None
        self._clerk_refused = False

    def look(self, raw: Raw, log: SweepView | ClerkUnknown) -> None:
        """Tell what is new."""
        if isinstance(log, ClerkUnknown):
            return
        before, self._told = self._told, log
        # A log that nobody has written is new as a whole; of another the past is known.
        if before is None and log.position > 0:
            return
        for event in _news(before or SweepView(), log):
            self._record(raw, event)

    def clerk(self, raw: Raw, unknown: ClerkUnknown | None) -> None:
        """Tell once that its pod cannot be created; all else the pod's own events tell."""
        refused = unknown if unknown and unknown.reason == CLERK_REFUSED else None
        if refused is not None and not self._clerk_refused:
            self._record(raw, Event(type="Warning", reason=refused.reason, message=refused.message))
        self._clerk_refused = refused is not None

    def refused(self, raw: Raw, reason: str, message: str) -> None:
        """The spec cannot be used."""
        self._record(raw, Event(type="Warning", reason=reason, message=message))


def _news(before: SweepView, now: SweepView) -> Iterator[Event]:
    if len(now.sessions) > len(before.sessions):
        what = "the sweep begins" if not before.sessions else "the sweep is taken up again"
        yield Event(type="Normal", reason="TakenUp", message=what)
    for trial in now.trials.values():
        known = before.trials.get(trial.number)
        if known is None and trial.fallback:
            message = f"trial {trial.number} was drawn by chance: {trial.fallback}"
            yield Event(type="Warning", reason="SamplerFailed", message=message)
        if known is None and (moved := displaced(trial)):
            yield Event(type="Warning", reason="RecordsLost", message=moved)
        if not trial.open and (known is None or known.open or known.opening != trial.opening):
            yield _ended(trial)
    if now.end is not None and before.end is None:
        end = now.end.record
        kind = "Normal" if end.verdict == "Succeeded" else "Warning"
        yield Event(
            type="Normal" if kind == "Normal" else "Warning", reason=end.reason, message=end.message
        )


def _ended(trial: TrialView) -> Event:
    why = f": {trial.message.splitlines()[0]}" if trial.message.strip() else ""
    value = "" if trial.value is None else f" with {trial.value:g}"
    message = f"trial {trial.number} {trial.state.lower()}{value} ({trial.reason}){why}"
    errored = trial.state == "Errored"
    return Event(
        type="Warning" if errored else "Normal", reason=f"Trial{trial.state}", message=message
    )
