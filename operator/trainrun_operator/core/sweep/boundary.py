"""Where a world and the core meet: what a decision about a sweep looks at, and what follows.

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
    """The TrainRun of one opening of a trial, as it is now."""

    name: str
    uid: str
    trial: int
    opening: int
    phase: TrialRunPhase
    """Waiting: for room; also one that nobody has looked at yet."""
    suspend: bool = False
    """spec.suspend."""
    reason: str = ""
    """Of its verdict."""
    message: str = ""
    restarts: int = 0
    attempt: int = 0
    """The newest one."""
    created: float = 0.0
    """Only compared with one another: later ones are greater."""

    @property
    def ended(self) -> bool:
        """Nothing of it works any more, or ever will."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def live(self) -> bool:
        """It takes one of the sweep's slots: it works, is on its way to, or is still saving."""
        return not self.ended and not (self.suspend and self.phase == "Suspended")


@dataclass(frozen=True, kw_only=True)
class ClerkUnknown:
    """Nobody can say what stands in the log."""

    message: str
    reason: str = "ClerkNotHeard"


CLERK_REFUSED = "ClerkRefused"
"""The reason where the clerk's pod cannot be created: only the sweep itself can show that."""


@dataclass(frozen=True, kw_only=True)
class SweepObservation:
    """One look at a sweep."""

    log: SweepView | ClerkUnknown
    acted_on: int = 0
    """Position of the log that somebody has acted on already: an older view is out of date."""
    in_use: str = ""
    """Why another TrainSweep may not be superseded; empty: nobody objects."""
    runs: tuple[TrialRun, ...] = ()
    """Those that this TrainSweep owns, in any order."""
    carried_out: Targets | None = None
    """The newest targets of which the clerk has done everything; None: of none that are known."""


@dataclass(frozen=True, kw_only=True)
class CreateTrial:
    """Create the run of an opening; it may be there already."""

    name: str
    trial: TrialView
    """As the log has it."""


@dataclass(frozen=True, kw_only=True)
class SuspendTrial:
    """Save and stop a run, or let it go on."""

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
    """Where a sweep stands, for people."""

    phase: SweepPhase
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """Everything that follows from one look."""

    verdict: SweepVerdict
    targets: Targets | None = None
    """For the clerk; None: it is told nothing."""
    actions: tuple[TrialAction, ...] = ()
    takes_up: bool = False
    """The targets order a session."""
    over: bool = False
    """Nothing will change until the spec does: exactly then the verdict's phase is Succeeded or
    Failed, which keeps others from leading it."""
    wake_after: float | None = None
    """Seconds until it is looked again, whatever happens."""

    @property
    def guarded(self) -> bool:
        """Carried out only once the status says, by a guarded write, that the log was acted on up
        to the position that this plan follows from: whoever looks at something older, or is not
        there any more, loses that write."""
        return self.takes_up or bool(self.actions)
