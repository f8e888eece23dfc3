"""The runs of a drill one after the other, within the time that it may take.

Layer: cli.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainrun.errors import TrainRunError
from trainrun_operator.cli.drilling.curves import Tolerance, tolerance
from trainrun_operator.cli.drilling.rehearsed import (
    Drill,
    Rehearsed,
    findings_of_controls,
    judge,
)
from trainrun_operator.cli.drilling.scenarios import FaultName, Scenario, scenarios
from trainrun_operator.cli.wording import seconds as in_words

if TYPE_CHECKING:
    from trainrun_operator.api.run.resource import TrainRun
    from trainrun_operator.cli.drilling.course import Course
    from trainrun_operator.cli.drilling.trial import Ground
    from trainrun_operator.worlds.local.faults import Fault

PART = 6
"""One part in so many of the time is for the first run, where no step is named: there are five, and
restarts take time, too."""

ALL: tuple[FaultName, ...] = ("KillAfterCheckpoint", "KillBeforeCheckpoint", "Notice")


class ScriptFails(TrainRunError):
    """The script does not get through without any fault."""


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """One drill."""

    run: TrainRun
    """As its file has it."""
    ground: Ground
    until: int | None
    """The step to go to; None: as far as the first run gets."""
    within: float
    """Seconds for everything."""
    say: Callable[[str], None]
    _begun: float = field(default_factory=time.monotonic)

    def hold(self) -> Drill:
        """Make all runs. Raises ScriptFails, InvalidSpec, StoreError, KeyboardInterrupt."""
        first = self._undisturbed("first", None)
        until = self._reached(first)
        if until is None:
            why = "no step was reported in the time: does the script call trainrun.report()?"
            return self._drill([first], None, None, tuple(_not(name, why) for name in ALL))
        controls = [first]
        if self._left() > first.seconds:
            controls.append(self._undisturbed("second", until))
        within = tolerance(first.curve(1), controls[-1].curve(1), until=until)
        compared = within if len(controls) == 2 and within.steps else None
        grace = self.run.spec.workers.template.spec.grace
        rehearsed = tuple(
            self._rehearse(scenario, first, compared, until)
            for scenario in scenarios(first, until=until, grace=grace)
        )
        return self._drill(controls, until, compared, rehearsed)

    def _undisturbed(self, which: str, until: int | None) -> Course:
        until = self.until if until is None else until
        left = self._left()
        if which == "first":
            left = self.within / (2 if until is not None else PART)
        course = self._try(f"{which} undisturbed run", None, until, left)
        if course.ending == "Failed" or len(course.chapters) > 1:
            why = course.failure or str(course.chapters[0].incident.get("message", ""))
            raise ScriptFails(
                f"without any fault the run fails: {why}\nsee more with `trainrun run`, which "
                "keeps what the workers print"
            )
        return course

    def _reached(self, control: Course) -> int | None:
        """The step to which all other runs go."""
        reached = control.reached(1)
        if reached is None or self.until is None:
            return reached
        return min(reached, self.until)

    def _rehearse(
        self, scenario: Scenario, control: Course, within: Tolerance | None, until: int
    ) -> Rehearsed:
        fault = scenario.fault
        if fault is None:
            return _not(scenario.name, scenario.why_not)
        if self._left() < control.seconds:
            return _not(scenario.name, "no time was left: give more by --within")
        course = self._try(f"run with {fault}", fault, until, self._left())
        on_notice = self.run.spec.checkpoint.on_notice
        return judge(scenario, course, control, within, until=until, on_notice=on_notice)

    def _try(self, what: str, fault: Fault | None, until: int | None, left: float) -> Course:
        goal = f"until step {until}" if until is not None else "until its third checkpoint"
        self.say(f"{what} {goal}, at most {in_words(left)}")
        return self.ground.try_run(fault=fault, until=until, seconds=left)

    def _left(self) -> float:
        return self.within - (time.monotonic() - self._begun)

    def _drill(
        self,
        controls: list[Course],
        until: int | None,
        within: Tolerance | None,
        rehearsed: tuple[Rehearsed, ...],
    ) -> Drill:
        return Drill(
            run=self.run.run_name,
            world_size=controls[0].world_size,
            until=until,
            seconds=time.monotonic() - self._begun,
            within=within,
            control_findings=findings_of_controls(controls),
            rehearsed=rehearsed,
            notes=tuple(self._notes(until)),
        )

    def _notes(self, until: int | None) -> list[str]:
        if until is None or self.until is None or until >= self.until:
            return []
        return [f"step {self.until} was not reached: everything ends with step {until}"]


def _not(name: FaultName, why: str) -> Rehearsed:
    return Rehearsed(scenario=Scenario(name=name), outcome="NotRehearsed", why_not=why)
