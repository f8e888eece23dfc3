"""The faults of `--all`, which test TrainRun rather than the script.

Layer: cli; pure. Each strikes in mid-epoch, with a checkpoint behind it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.cli.drilling.scenarios import OURS, FaultName, Scenario, middle
from trainrun_operator.worlds.local.faults import Fault

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.course import Course

SHORTEST_TIMEOUT = 5.0
"""Seconds; the least that health.progressTimeout takes."""
PATIENCE = 3.0
"""Times the longest step of the undisturbed run that a rank may take before it counts as hung."""


def hardships(control: Course, *, until: int) -> tuple[Scenario, ...]:
    """What to rehearse after an undisturbed run that got to step `until`."""
    saves = [step for step in control.committed if step < until]
    if not saves:
        why = f"no checkpoint was committed before step {until}: save more often, or go further"
        return tuple(Scenario(name=name, why_not=why) for name in OURS)
    step = middle(saves, until)
    if step >= until:
        why = f"no step is left between the checkpoint of step {saves[-1]} and step {until}"
        return tuple(Scenario(name=name, why_not=why) for name in OURS)
    kill = Fault(kind="kill", rank=control.ranks(1)[-1], step=step)
    return tuple(_scenario(name, kill, control, saves) for name in OURS)


def _scenario(name: FaultName, kill: Fault, control: Course, saves: list[int]) -> Scenario:
    scenario = Scenario(name=name, faults=(kill,))
    if name == "CorruptNewest":
        if len(saves) < 2 or not control.savers:
            why = "it takes two checkpoints before the last step, one of which is damaged"
            return Scenario(name=name, why_not=why)
        return replace(scenario, store="SpoilNewest")
    if name == "StoreAway":
        return replace(scenario, store="Away")
    if name == "DoubleFailure":
        again = replace(kill, step=0, at="load")
        return replace(scenario, faults=(kill, again))
    if name == "NodeLoss":
        return replace(scenario, faults=(replace(kill, kind="node-loss"),))
    timeout = max(SHORTEST_TIMEOUT, round(PATIENCE * control.longest_step))
    return replace(scenario, faults=(replace(kill, kind="hang"),), watched=timeout)
