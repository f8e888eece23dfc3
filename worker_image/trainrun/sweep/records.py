"""What stands in a sweep's log, and what the operator asks of the clerk that writes it.

Layer: pure. Invariants: each record is written once, in one total order; values of the objective
travel as text, since JSON has no word for those that are no finite numbers, and other readers would
refuse the file; the operator gives targets, never steps, so any of them may be lost or doubled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

VERSION = 1
"""Of the records."""

TrialState = Literal["Open", "Succeeded", "Stopped", "Diverged", "Errored", "Skipped"]
Verdict = Literal["Succeeded", "Failed"]


@dataclass(frozen=True)
class SweepSession:
    """Somebody takes the search up: the first time, on another cluster, or to try errors again."""

    uid: str
    """Of the TrainSweep."""
    token: int = 0
    """spec.resume.token: one more takes the search up again for the same TrainSweep."""
    spec: str = ""
    """What of the spec can never change, as JSON with sorted keys."""
    resume_unfinished: bool = True
    resume_errored: bool = False
    restart_errored: bool = False
    kind: Literal["Session"] = "Session"


@dataclass(frozen=True)
class Ask:
    """A trial's number and parameters; from here on they never change."""

    trial: int
    params: dict[str, Any]
    study: dict[str, Any] = field(default_factory=dict)
    """What the sampler has to know of itself next time, as far as it has changed."""
    fallback: str = ""
    """Why these were drawn by chance although another sampler was wanted; empty: they were not."""
    first: int = 1
    """Number of its first opening and incarnation: greater than 1 where the folders of this trial
    number were in use already, by a trial that the log does not know."""
    kind: Literal["Ask"] = "Ask"


@dataclass(frozen=True)
class TrialReport:
    """One value of the objective, as the script reported it."""

    trial: int
    incarnation: int
    attempt: int
    """Of the trial's run; only grows within an incarnation, also from one cluster to the next."""
    resumed: int
    """The step that this attempt went on from; 0: from nothing."""
    seq: int
    """Grows within an attempt."""
    step: int
    value: str
    """As `written` writes it."""


@dataclass(frozen=True)
class Reports:
    """What was heard since the last such record, and how long was worked meanwhile."""

    reports: tuple[TrialReport, ...] = ()
    active: float = 0.0
    """Seconds, of the clerk's monotonic clock."""
    kind: Literal["Reports"] = "Reports"


@dataclass(frozen=True)
class Tell:
    """How an opening of a trial has ended."""

    trial: int
    opening: int
    state: TrialState
    reason: str
    """CamelCase, for machines."""
    message: str = ""
    value: str = ""
    """The trial's own value, as `written` writes it; empty: it has none."""
    step: int = 0
    """Where that value was reported."""
    restarts: int = 0
    """What its run has survived."""
    attempt: int = 0
    """The last one of its run, reports or none."""
    resumed: int = 0
    """The step that this one went on from."""
    kind: Literal["Tell"] = "Tell"


@dataclass(frozen=True)
class End:
    """The search is over; open trials are kept as they are."""

    verdict: Verdict
    reason: str
    message: str
    kind: Literal["End"] = "End"


@dataclass(frozen=True)
class Amend:
    """The search goes on after all: what ended it was changed by its user."""

    lifts: int
    """Position of the End that this takes back; of no other."""
    kind: Literal["Amend"] = "Amend"


Record = SweepSession | Ask | Reports | Tell | End | Amend


@dataclass(frozen=True)
class LogEntry:
    """What an object of the log holds."""

    record: Record
    version: int = VERSION


def written(value: float) -> str:
    """A value as records hold it, exactly; float() reads it, also nan and inf."""
    return repr(float(value))


@dataclass(frozen=True)
class EndedRun:
    """The run of one opening of a trial has ended."""

    trial: int
    opening: int
    succeeded: bool
    reason: str = ""
    """Why it failed: the reason of its verdict."""
    message: str = ""
    restarts: int = 0
    attempt: int = 0
    """Its last one."""
    resumed: int = 0
    """The step that this one went on from."""
    seq: int = 0
    """The last report of that attempt; it is told once the log has it."""
    metrics: tuple[str, ...] = ()
    """Names of some metrics that it has reported: the objective may have another one there."""


@dataclass(frozen=True)
class Targets:
    """Everything that the log is to hold, as far as it does not yet."""

    session: SweepSession
    after: int = 0
    """Sessions that were known when this one was ordered: it is recorded only as the next one. An
    order that comes late must not end a session that is newer."""
    asked: int = 0
    """Trials that are to have parameters."""
    ended: tuple[EndedRun, ...] = ()
    stopped: tuple[int, ...] = ()
    """Trials that the user wants to end."""
    end: End | None = None
    cleared: tuple[int, ...] = ()
    """Trials whose checkpoints are not needed any more, and whose runs are gone."""
    amend: int = 0
    """Position of the End to take back; 0: none."""
