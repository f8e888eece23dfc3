"""The runs of a drill one after the other, within the time that it may take.

Layer: cli.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from trainrun.errors import TrainRunError
from trainrun_operator.cli.drilling.contents import agreed
from trainrun_operator.cli.drilling.curves import tolerance
from trainrun_operator.cli.drilling.findings import Undisturbed
from trainrun_operator.cli.drilling.hardships import hardships
from trainrun_operator.cli.drilling.measuring import earlier, longer, with_measured
from trainrun_operator.cli.drilling.rehearsed import (
    Drill,
    Rehearsed,
    findings_of_controls,
    judge,
)
from trainrun_operator.cli.drilling.scenarios import FaultName, Scenario, scenarios
from trainrun_operator.cli.drilling.store import AWAY
from trainrun_operator.cli.wording import seconds as in_words

if TYPE_CHECKING:
    from trainrun_operator.api.run.resource import TrainRun
    from trainrun_operator.cli.drilling.course import Course
    from trainrun_operator.cli.drilling.curves import Tolerance
    from trainrun_operator.cli.drilling.ground import Ground


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
    everything: bool = False
    """Also the faults that test TrainRun."""
    _begun: float = field(default_factory=time.monotonic)

    def hold(self) -> Drill:
        """Make all runs. Raises ScriptFails, InvalidSpec, StoreError, KeyboardInterrupt."""
        first = self._undisturbed("first", None)
        until = self._reached(first)
        if until is None:
            why = "no step was reported in the time: does the script call trainrun.report()?"
            return self._drill([first], None, None, tuple(_not(name, why) for name in self._names))
        controls = [first]
        if self._left() > first.seconds:
            controls.append(self._undisturbed("second", until))
        within = tolerance(first.curve(1), controls[-1].curve(1), until=until)
        beside = Undisturbed(
            control=first,
            within=within if len(controls) == 2 and within.steps else None,
            contents=agreed(*controls) if len(controls) == 2 else {},
            until=until,
            on_notice=self.run.spec.checkpoint.on_notice,
        )
        rehearsed = tuple(self._rehearse(it, beside) for it in self._planned(first, until))
        return self._drill(controls, until, beside.within, rehearsed)

    def _planned(self, control: Course, until: int) -> list[Scenario]:
        named = self._names
        there = (
            *scenarios(control, until=until, grace=self._grace),
            *hardships(control, until=until),
        )
        return [
            self.ground.possible(scenario, control, until=until)
            for scenario in there
            if scenario.name in named
        ]

    @property
    def _names(self) -> tuple[FaultName, ...]:
        return self.ground.names(everything=self.everything)

    @property
    def _grace(self) -> float:
        return self.run.spec.workers.template.spec.grace

    def _undisturbed(self, which: str, until: int | None) -> Course:
        until = self.until if until is None else until
        left = self._left()
        if which == "first":
            # One part for each run, and one more: restarts take time, too.
            left = self.within / (2 if until is not None else len(self._names) + 3)
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

    def _rehearse(self, scenario: Scenario, beside: Undisturbed) -> Rehearsed:
        if not scenario.faults:
            return _not(scenario.name, scenario.why_not)
        if self._left() < _least(scenario, beside.control):
            return _not(scenario.name, "no time was left: give more by --within")
        what = f"run with {scenario.shown}{STORES[scenario.store]}"
        course = self._try(what, scenario, beside.until, self._left())
        told = replace(judge(scenario, course, beside), scenario=scenario)
        sooner = earlier(told, course, until=beside.until)
        if sooner is not None and self._left() >= _least(sooner, beside.control):
            what = f"its save came with the last step: run with {sooner.shown}"
            course = self._try(what, sooner, beside.until, self._left())
            told = replace(judge(sooner, course, beside), scenario=sooner)
        again = longer(told)
        if again is None or self._left() < _least(again, beside.control):
            return told
        what = f"how long a save takes: run with {again.shown}"
        return with_measured(told, self._try(what, again, beside.until, self._left()))

    def _try(self, what: str, scenario: Scenario | None, until: int | None, left: float) -> Course:
        goal = f"until step {until}" if until is not None else "until its third checkpoint"
        self.say(f"{what} {goal}, at most {in_words(left)}")
        return self.ground.try_run(scenario=scenario, until=until, seconds=left)

    def _left(self) -> float:
        return self.within - (time.monotonic() - self._begun)

    def _drill(
        self,
        controls: list[Course],
        until: int | None,
        within: Tolerance | None,
        rehearsed: tuple[Rehearsed, ...],
    ) -> Drill:
        on_notice = self.run.spec.checkpoint.on_notice
        return Drill(
            run=self.run.run_name,
            world_size=controls[0].world_size,
            until=until,
            seconds=time.monotonic() - self._begun,
            within=within,
            curve=controls[0].curve(1),
            control_findings=findings_of_controls(controls, grace=self._grace, on_notice=on_notice),
            rehearsed=rehearsed,
            notes=(*self.ground.notes, *self._notes(until), *_unclear(rehearsed)),
        )

    def _notes(self, until: int | None) -> list[str]:
        if until is None or self.until is None or until >= self.until:
            return []
        return [f"step {self.until} was not reached: everything ends with step {until}"]


STORES = {
    "Kept": "",
    "SpoilNewest": " and damage to the newest checkpoint",
    "Away": f" and the store away for {AWAY:.0f} s",
}


def _unclear(rehearsed: tuple[Rehearsed, ...]) -> list[str]:
    names = sorted({name for it in rehearsed for name in it.unclear})
    named = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    text = (
        f"{named}: saved after a resume, the bytes differ from those of an undisturbed run. The "
        "drill cannot read this format, so it does not know whether the content differs"
    )
    return [text] if names else []


def _least(scenario: Scenario, control: Course) -> float:
    """Seconds that a run with this fault takes at least."""
    away = AWAY if scenario.store == "Away" else 0.0
    return control.seconds + away + scenario.watched


def _not(name: FaultName, why: str) -> Rehearsed:
    return Rehearsed(scenario=Scenario(name=name), outcome="NotRehearsed", why_not=why)
