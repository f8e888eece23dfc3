"""The faults of a drill, and at which step each strikes: from what the undisturbed run did.

Layer: cli; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainrun_operator.worlds.local.faults import Fault

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.course import Course

FaultName = Literal["KillAfterCheckpoint", "KillBeforeCheckpoint", "Notice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One fault to rehearse, or why it cannot be."""

    name: FaultName
    fault: Fault | None = None
    why_not: str = ""


def scenarios(control: Course, *, until: int, grace: float) -> tuple[Scenario, ...]:
    """What to rehearse after an undisturbed run that got to step `until`.

    The highest rank that reports is hit: rank 0, whose metrics are compared, lives on.
    """
    rank = control.ranks(1)[-1]
    saves = [step for step in control.committed if step < until]
    first = min(control.steps(1), default=0)
    return (
        _after_checkpoint(rank, saves, until),
        _before_checkpoint(rank, saves, first=first, until=until),
        _notice(rank, saves, first=first, until=until, grace=grace),
    )


def _after_checkpoint(rank: int, saves: list[int], until: int) -> Scenario:
    name: FaultName = "KillAfterCheckpoint"
    if not saves:
        why = f"no checkpoint was committed before step {until}: save more often, or go further"
        return Scenario(name=name, why_not=why)
    step = _middle(saves, until)
    if step >= until:
        why = f"no step is left between the checkpoint of step {saves[-1]} and step {until}"
        return Scenario(name=name, why_not=why)
    return Scenario(name=name, fault=Fault(kind="kill", rank=rank, step=step))


def _before_checkpoint(rank: int, saves: list[int], *, first: int, until: int) -> Scenario:
    name: FaultName = "KillBeforeCheckpoint"
    end = min([*saves, until])
    step = (first + end) // 2
    if step >= end:
        return Scenario(name=name, why_not=f"the first checkpoint comes with step {end} already")
    return Scenario(name=name, fault=Fault(kind="kill", rank=rank, step=step))


def _notice(rank: int, saves: list[int], *, first: int, until: int, grace: float) -> Scenario:
    step = _middle(saves, until) if saves else (first + until) // 2
    if step >= until:
        return Scenario(name="Notice", why_not=f"no step is left before step {until}")
    return Scenario(name="Notice", fault=Fault(kind="preempt", rank=rank, step=step, grace=grace))


def _middle(saves: list[int], until: int) -> int:
    """Between the second checkpoint and the next: so one is there, even if commits are slow."""
    saved = saves[min(1, len(saves) - 1)]
    later = next((step for step in saves if step > saved), until)
    return saved + max((later - saved) // 2, 1)
