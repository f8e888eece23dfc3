"""The records of a sweep's log, and the targets that the operator gives the clerk that writes it.

Layer: pure. Invariants: each record is written once, in one total order; values of the objective
are stored as text, since JSON cannot express numbers that are not finite, and other readers would
refuse the file; the operator gives targets, never steps, so messages may be lost or doubled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

VERSION = 1
"""Version of the records."""

TrialState = Literal["Open", "Succeeded", "Stopped", "Diverged", "Errored", "Skipped"]
Verdict = Literal["Succeeded", "Failed"]


@dataclass(frozen=True)
class SweepSession:
    """The search starts or resumes: first, on another cluster, or to retry errored trials."""

    uid: str
    """Of the TrainSweep."""
    token: int = 0
    """spec.resume.token: a higher one resumes the search for the same TrainSweep."""
    spec: str = ""
    """The part of the spec that can never change, as JSON with sorted keys."""
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
    """The part of the sampler's state that has changed; the sampler needs it next time."""
    fallback: str = ""
    """Why these were drawn at random in place of the wanted sampler; empty: they were not."""
    first: int = 1
    """Number of its first opening and incarnation: greater than 1 if the folders of this trial
    number were in use by a trial that the log does not know."""
    kind: Literal["Ask"] = "Ask"


@dataclass(frozen=True)
class TrialReport:
    """One value of the objective, as the script reported it."""

    trial: int
    incarnation: int
    attempt: int
    """Attempt of the trial's run; only grows within an incarnation, also across clusters."""
    resumed: int
    """The step that this attempt resumed from; 0: from scratch."""
    seq: int
    """Grows within an attempt."""
    step: int
    value: str
    """As `written` formats it."""


@dataclass(frozen=True)
class Reports:
    """The reports since the last such record, and the time worked since then."""

    reports: tuple[TrialReport, ...] = ()
    active: float = 0.0
    """Seconds by the clerk's monotonic clock."""
    kind: Literal["Reports"] = "Reports"


@dataclass(frozen=True)
class Tell:
    """The end of an opening of a trial."""

    trial: int
    opening: int
    state: TrialState
    reason: str
    """CamelCase, for machines."""
    message: str = ""
    value: str = ""
    """The trial's own value, as `written` formats it; empty: it has none."""
    step: int = 0
    """The step at which that value was reported."""
    restarts: int = 0
    """Restarts of its run."""
    attempt: int = 0
    """The last attempt of its run, with or without reports."""
    resumed: int = 0
    """The step that this attempt resumed from."""
    kind: Literal["Tell"] = "Tell"


@dataclass(frozen=True)
class End:
    """The search is over; open trials stay open."""

    verdict: Verdict
    reason: str
    message: str
    kind: Literal["End"] = "End"


@dataclass(frozen=True)
class Amend:
    """The search continues after its end, since the user changed what ended it."""

    lifts: int
    """Position of the only End that this takes back."""
    kind: Literal["Amend"] = "Amend"


Record = SweepSession | Ask | Reports | Tell | End | Amend


@dataclass(frozen=True)
class LogEntry:
    """The content of an object of the log."""

    record: Record
    version: int = VERSION


def written(value: float) -> str:
    """The exact text of a value in records; float() reads it, also nan and inf."""
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
    """Its last attempt."""
    resumed: int = 0
    """The step that this attempt resumed from."""
    seq: int = 0
    """The last report of that attempt; the end is recorded once the log has it."""
    metrics: tuple[str, ...] = ()
    """Names of some metrics that it has reported: the objective may be misspelled."""


@dataclass(frozen=True)
class Targets:
    """Everything that the log should hold and does not hold yet."""

    session: SweepSession
    after: int = 0
    """Sessions known when this one was ordered: it is recorded only as the next one. A late order
    must not end a newer session."""
    asked: int = 0
    """Number of trials that should have parameters."""
    ended: tuple[EndedRun, ...] = ()
    stopped: tuple[int, ...] = ()
    """Trials that the user wants to end."""
    end: End | None = None
    cleared: tuple[int, ...] = ()
    """Trials whose checkpoints are no longer needed, and whose runs are gone."""
    amend: int = 0
    """Position of the End to take back; 0: none."""
