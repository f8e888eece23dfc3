"""The faults that test the script, and at which step each strikes: from what the undisturbed run
did.

Layer: cli; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainrun_operator.worlds.local.faults import Fault

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.course import Course

FaultName = Literal[
    "KillAfterCheckpoint",
    "KillWhileSaving",
    "Notice",
    "KillBeforeCheckpoint",
    "KillMidEpoch",
    "KillAtEnd",
    "CorruptNewest",
    "StoreAway",
    "DoubleFailure",
    "NodeLoss",
    "Hang",
]

OF_SCRIPT: tuple[FaultName, ...] = (
    "KillAfterCheckpoint",
    "KillWhileSaving",
    "Notice",
    "KillBeforeCheckpoint",
    "KillMidEpoch",
    "KillAtEnd",
)
"""In the order in which they are rehearsed: those that find most come first, for time may be
short."""

OURS: tuple[FaultName, ...] = ("CorruptNewest", "DoubleFailure", "NodeLoss", "StoreAway", "Hang")
"""Those that test TrainRun, likewise."""

Store = Literal["Kept", "SpoilNewest", "Away"]
"""What happens to the storage when the fault strikes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One fault to rehearse, or why it cannot be."""

    name: FaultName
    faults: tuple[Fault, ...] = ()
    """In the order in which they strike; each ends an attempt."""
    store: Store = "Kept"
    watched: float = 0.0
    """Seconds of health.progressTimeout; 0: as the file has it."""
    why_not: str = ""

    @property
    def shown(self) -> str:
        """As on the command line."""
        return ", ".join(map(str, self.faults))


def scenarios(control: Course, *, until: int, grace: float) -> tuple[Scenario, ...]:
    """What to rehearse after an undisturbed run that got to step `until`.

    The highest rank that reports is hit: rank 0, whose metrics are compared, lives on.
    """
    rank = control.ranks(1)[-1]
    saves = [step for step in control.committed if step < until]
    first = min(control.steps(1), default=0)
    planned = (
        _after_checkpoint(rank, saves, until),
        _while_saving(control, saves),
        _notice(rank, saves, first=first, until=until, grace=grace),
        _before_checkpoint(control, saves, first=first, until=until),
        _mid_epoch(control, saves, until),
    )
    return tuple(it for it in planned if it is not None)


def at_end(control: Course, *, until: int) -> Scenario:
    """A kill with the last step, after a run that has ended by itself with this step."""
    name: FaultName = "KillAtEnd"
    if control.committed[-1:] != (until,):
        return Scenario(name=name, why_not=f"no checkpoint was committed of the last step, {until}")
    rank = (control.savers or tuple(control.ranks(1)))[-1]  # it reports later than one that waits
    return Scenario(name=name, faults=(Fault(kind="kill", rank=rank, step=until),))


def _after_checkpoint(rank: int, saves: list[int], until: int) -> Scenario:
    name: FaultName = "KillAfterCheckpoint"
    if not saves:
        return Scenario(name=name, why_not=_none_committed(until))
    step = second(saves) + 1
    if step >= until:
        why = f"no step is left between the checkpoint of step {saves[-1]} and step {until}"
        return Scenario(name=name, why_not=why)
    return Scenario(name=name, faults=(Fault(kind="kill", rank=rank, step=step),))


def _while_saving(control: Course, saves: list[int]) -> Scenario:
    name: FaultName = "KillWhileSaving"
    if not saves or not control.savers:
        return Scenario(name=name, why_not="no rank is known to have brought files before the end")
    # The second one: so one is there that is whole.
    fault = Fault(kind="kill", rank=control.savers[-1], step=second(saves), at="save")
    return Scenario(name=name, faults=(fault,))


def _before_checkpoint(
    control: Course, saves: list[int], *, first: int, until: int
) -> Scenario | None:
    name: FaultName = "KillBeforeCheckpoint"
    end = min([*saves, until])
    rank, step = control.ranks(1)[-1], (first + end) // 2
    if step < end:
        return Scenario(name=name, faults=(Fault(kind="kill", rank=rank, step=step),))
    if not saves or not control.savers:
        return None  # there is no moment before the first checkpoint that would show itself
    fault = Fault(kind="kill", rank=control.savers[-1], step=end, at="save")
    return Scenario(name=name, faults=(fault,))


def _mid_epoch(control: Course, saves: list[int], until: int) -> Scenario | None:
    name: FaultName = "KillMidEpoch"
    if not saves:
        return Scenario(name=name, why_not=_none_committed(until))
    saved, step = second(saves), middle(saves, until)
    later = next((it for it in saves if it > saved), until)
    told = control.steps(1) or [step]
    if not any(saved + 1 < it < later for it in told) or step <= saved + 1:
        return None  # it would be KillAfterCheckpoint once more
    return Scenario(name=name, faults=(Fault(kind="kill", rank=control.ranks(1)[-1], step=step),))


def _notice(rank: int, saves: list[int], *, first: int, until: int, grace: float) -> Scenario:
    step = middle(saves, until) if saves else (first + until) // 2
    if step >= until:
        return Scenario(name="Notice", why_not=f"no step is left before step {until}")
    fault = Fault(kind="preempt", rank=rank, step=step, grace=grace)
    return Scenario(name="Notice", faults=(fault,))


def _none_committed(until: int) -> str:
    return f"no checkpoint was committed before step {until}: save more often, or go further"


def second(saves: list[int]) -> int:
    """The second checkpoint: so one is there, even if commits are slow."""
    return saves[min(1, len(saves) - 1)]


def middle(saves: list[int], until: int) -> int:
    """The step between the second checkpoint and the next one that is farthest from both."""
    saved = second(saves)
    later = next((step for step in saves if step > saved), until)
    return saved + max((later - saved) // 2, 1)
