"""The interface between a world and the core: what a decision about a sweep reads and returns.

Layer: core, pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainrun.sweep.records import Targets
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.api.sweep.status import SweepPhase

TrialRunPhase = Literal["Waiting", "Running", "Suspended", "Succeeded", "Failed"]


@dataclass(frozen=True, kw_only=True)
class TrialRun:
    """The TrainRun of one opening of a trial, in its current state."""

    name: str
    uid: str
    trial: int
    opening: int
    phase: TrialRunPhase
    """Waiting: for room; also a run that no operator has looked at yet."""
    suspend: bool = False
    """spec.suspend."""
    reason: str = ""
    """Reason of its verdict."""
    message: str = ""
    restarts: int = 0
    attempt: int = 0
    """Number of the newest attempt."""
    created: float = 0.0
    """Time of creation, only for comparison: later runs have greater values."""

    @property
    def ended(self) -> bool:
        """Whether the run is over for good."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def live(self) -> bool:
        """Whether it takes one of the sweep's slots: it works, is starting, or is still saving."""
        return not self.ended and not (self.suspend and self.phase == "Suspended")


@dataclass(frozen=True, kw_only=True)
class ClerkUnknown:
    """The content of the log is unknown."""

    message: str
    reason: str = "ClerkNotHeard"


CLERK_REFUSED = "ClerkRefused"
"""The reason if the clerk's pod cannot be created; only the sweep's status can show it."""


@dataclass(frozen=True, kw_only=True)
class SweepObservation:
    """One look at a sweep."""

    log: SweepView | ClerkUnknown
    acted_on: int = 0
    """Position in the log up to which an operator has acted: a shorter view is out of date."""
    in_use: str = ""
    """Why this TrainSweep may not take over from another; empty: it may."""
    runs: tuple[TrialRun, ...] = ()
    """The runs that this TrainSweep owns, in any order."""
    carried_out: Targets | None = None
    """The newest targets that the clerk has carried out in full; None: none known."""


@dataclass(frozen=True, kw_only=True)
class CreateTrial:
    """Create the run of an opening; it may exist already."""

    name: str
    trial: TrialView
    """The trial as in the log."""


@dataclass(frozen=True, kw_only=True)
class SuspendTrial:
    """Save and stop a run, or let it continue."""

    name: str
    uid: str
    suspend: bool


@dataclass(frozen=True, kw_only=True)
class DeleteTrial:
    """Delete a run; its folder stays."""

    name: str
    uid: str


TrialAction = CreateTrial | SuspendTrial | DeleteTrial


@dataclass(frozen=True, kw_only=True)
class SweepVerdict:
    """The state of a sweep, for people."""

    phase: SweepPhase
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """Everything that follows from one observation."""

    verdict: SweepVerdict
    targets: Targets | None = None
    """Targets for the clerk; None: it gets none."""
    actions: tuple[TrialAction, ...] = ()
    takes_up: bool = False
    """Whether the targets order a new session."""
    over: bool = False
    """Whether nothing changes until the spec does: only then is the verdict's phase Succeeded or
    Failed, which makes other operators leave the sweep alone."""
    wake_after: float | None = None
    """Seconds until the next pass at the latest."""

    @property
    def guarded(self) -> bool:
        """Whether the plan must wait for a guarded write of the status, which records the log's
        position behind this plan: an operator with an older view, or without leadership, fails
        that write."""
        return self.takes_up or bool(self.actions)
