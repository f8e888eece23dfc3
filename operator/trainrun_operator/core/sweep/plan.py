"""What can follow from a look at a sweep.

Layer: core, pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainrun.sweep.targets import Targets
from trainrun.sweep.view import TrialView
from trainrun_operator.api.sweep.status import SweepPhase


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
