"""The runs of a drill one after the other, within the time that it may take; and the environment in
which they run.

Layer: cli. This machine and a cluster are one `DrillEnvironment` each; the conclusions from the
runs are the same.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from trainrun.contract.metrics import OF_TASKS
from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.api.resources import TrainRun
from trainrun_operator.api.run.folder import FolderSpec
from trainrun_operator.cli.drilling.comparing import Tolerance, agreed, tolerance
from trainrun_operator.cli.drilling.findings import FaultFreeBaseline
from trainrun_operator.cli.drilling.runs import (
    AWAY,
    OF_FOLDER,
    OF_SCRIPT,
    OURS,
    DrillRun,
    FaultName,
    Goal,
    Scenario,
    at_end,
    fault_scenarios,
    scenarios,
)
from trainrun_operator.cli.drilling.verdicts import (
    TOO_EARLY,
    Drill,
    Rehearsed,
    earlier,
    files_shared,
    findings_of_controls,
    judge,
    longer,
    with_measured,
)
from trainrun_operator.cli.formatting import seconds as in_words
from trainrun_operator.cli.formatting import some


class DrillEnvironment(ABC):
    """Where a drill's runs take place: how they are made, disturbed and observed."""

    notes: ClassVar[tuple[str, ...]] = ()
    """What the reader of a drill in this environment should know first."""
    usual: ClassVar[tuple[FaultName, ...]] = OF_SCRIPT
    """The faults to rehearse here, unless all are asked for."""

    def names(self, *, everything: bool) -> tuple[FaultName, ...]:
        """The faults to rehearse here; with `everything`, all faults."""
        return (*OF_SCRIPT, *OURS) if everything else self.usual

    def possible(self, scenario: Scenario, control: DrillRun, *, until: int) -> Scenario:  # noqa: ARG002
        """The scenario as it can be made here, after this undisturbed run; if it cannot, without
        faults and with the reason. Unchanged, unless an environment overrides this."""
        return scenario

    @abstractmethod
    def try_run(self, scenario: Scenario | None, goal: Goal) -> DrillRun:
        """Run from fresh storage, and leave nothing behind.

        Raises InvalidSpec, StoreError, KeyboardInterrupt, and the errors of a cluster.
        """


def offline(runs: str) -> dict[str, str]:
    """Environment in which trackers send nothing; `runs`: URI of the folder for those of MLflow."""
    return {"WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": runs, "MLFLOW_ALLOW_FILE_STORE": "true"}


def survives(faults: int) -> dict[str, object]:
    """The failurePolicy of a drill's run: it must survive the planned faults, and one incident more
    is a finding."""
    return {"maxFailures": max(faults, 1), "backoff": {"initial": "0s"}}


class ScriptFails(TrainRunError):
    """The script fails without any fault."""


@dataclass(slots=True, kw_only=True)
class Rehearsal:
    """One drill."""

    run: TrainRun
    """The run as in its file."""
    environment: DrillEnvironment
    until: int | None
    """The step to go to; None: as far as the first run gets."""
    within: float
    """Seconds for everything."""
    say: Callable[[str], None]
    everything: bool = False
    """Also the faults that test TrainRun."""
    _started_at: float = field(default_factory=time.monotonic)
    _end_seen: bool = True

    def make_runs(self) -> Drill:
        """Make all runs. Raises ScriptFails, InvalidSpec, StoreError, KeyboardInterrupt."""
        first = self._undisturbed("first", None)
        if first.points and all(OF_TASKS in point.metrics for point in first.points):
            raise InvalidSpec(
                "there is nothing to rehearse: a program of tasks records finished tasks in its "
                "log and saves no checkpoints. To see it resume, start it with `trainrun run` "
                'and --fault "kill rank=0 step=10"'
            )
        reached = first.reached(1)  # all other runs go there
        until = reached if reached is None or self.until is None else min(reached, self.until)
        if until is None:
            why = (_SHOWN if self._own else _REPORTED).format(time=in_words(first.seconds))
            return self._drill([first], None, None, tuple(_not(name, why) for name in self._names))
        controls = [first]
        if self._left() > first.seconds:
            controls.append(self._undisturbed("second", until))
            if files_shared(*controls):
                why = "there is no undisturbed run to compare with: see what would go wrong"
                none = tuple(_not(name, why) for name in self._names)
                return self._drill(controls, until, None, none)
        within = tolerance(first.curve(1), controls[-1].curve(1), until=until)
        baseline = FaultFreeBaseline(
            control=first,
            within=within if len(controls) == 2 and within.steps else None,
            contents=agreed(*controls) if len(controls) == 2 else {},
            until=until,
            on_notice=self.run.spec.checkpoint.on_notice,
            resume_args=self._own.resume_args if self._own is not None else (),
        )
        rehearsed = [self._rehearse(scenario, baseline) for scenario in self._planned(first, until)]
        rehearsed += self._at_end(baseline)
        return self._drill(controls, until, baseline.within, tuple(rehearsed))

    def _at_end(self, baseline: FaultFreeBaseline) -> list[Rehearsed]:
        """The fault at the end of a run, if there is time for it."""
        left = min(self._left() / 3, PATIENCE * baseline.control.seconds)
        if "KillAtEnd" not in self._names or self.until is not None:
            return []
        whole = baseline.control
        here = self.environment.possible(Scenario(name="KillAtEnd"), whole, until=baseline.until)
        if here.why_not:
            return [_not(here.name, here.why_not)]
        if whole.ending != "Succeeded" and left > whole.seconds:
            whole = self._try("undisturbed run", None, Goal(until=NO_STEP, seconds=left))
        last = whole.reached(1)
        if whole.ending != "Succeeded" or last is None:
            self._end_seen = False
            return []
        scenario, ended = at_end(whole, until=last), replace(baseline, control=whole, until=last)
        rehearsed = self._rehearse(scenario, ended)
        for _ in range(TRIES - 1):
            if rehearsed.why_not != TOO_EARLY or self._left() < _least(scenario, whole):
                break
            rehearsed = self._rehearse(scenario, ended)
        return [rehearsed]

    def _planned(self, control: DrillRun, until: int) -> list[Scenario]:
        planned = scenarios(control, until=until, grace=self._grace)
        return [
            self.environment.possible(scenario, control, until=until)
            for scenario in (*planned, *fault_scenarios(control, until=until))
            if scenario.name in self._names
        ]

    @property
    def _own(self) -> FolderSpec | None:
        """Where a script that reports nothing saves."""
        return self.run.spec.checkpoint.folder

    @property
    def _names(self) -> tuple[FaultName, ...]:
        return OF_FOLDER if self._own else self.environment.names(everything=self.everything)

    @property
    def _grace(self) -> float:
        return self.run.spec.workers.template.spec.grace

    def _undisturbed(self, which: str, until: int | None) -> DrillRun:
        until = self.until if until is None else until
        # One part for each run, and one more: restarts take time, too. A script whose first steps
        # come late gets more: fewer faults are better than none.
        share = self.within / (len(self._names) + 3)
        left = self.within / 2 if which == "first" else self._left()
        goal = Goal(until=until, seconds=left, share=share)
        drill_run = self._try(f"{which} undisturbed run", None, goal)
        if drill_run.ending == "Failed" or len(drill_run.chapters) > 1:
            why = drill_run.failure or str(drill_run.chapters[0].incident.get("message", ""))
            raise ScriptFails(
                f"the run fails without any fault: {why}\nuse `trainrun run` to see more: it keeps "
                "what the workers print"
            )
        return drill_run

    def _rehearse(self, scenario: Scenario, baseline: FaultFreeBaseline) -> Rehearsed:
        if not scenario.faults:
            return _not(scenario.name, scenario.why_not)
        if self._left() < _least(scenario, baseline.control):
            needs = (3 + 2 * len(self._names)) * baseline.control.seconds
            why = (
                f"no time was left: everything takes about {in_words(needs)}, so raise --within "
                "to that"
            )
            return _not(scenario.name, why)
        what = f"run with {scenario.shown}{STORES[scenario.store]}"
        # A run that is killed with its last step is judged by its end.
        until = NO_STEP if scenario.name == "KillAtEnd" else baseline.until
        drill_run = self._try(what, scenario, Goal(until=until, seconds=self._left()))
        rehearsed = judge(scenario, drill_run, baseline)
        sooner = earlier(rehearsed, drill_run, until=baseline.until)
        if sooner is not None and self._left() >= _least(sooner, baseline.control):
            what = f"the save came with the last step: run with {sooner.shown}"
            drill_run = self._try(what, sooner, Goal(until=baseline.until, seconds=self._left()))
            rehearsed = judge(sooner, drill_run, baseline)
        again = longer(rehearsed)
        if again is None or self._left() < _least(again, baseline.control):
            return rehearsed
        what = f"to measure a save: run with {again.shown}"
        goal = Goal(until=baseline.until, seconds=self._left())
        return with_measured(rehearsed, self._try(what, again, goal))

    def _try(self, what: str, scenario: Scenario | None, goal: Goal) -> DrillRun:
        until = f"step {goal.until}" if goal.until is not None else "it has saved often enough"
        until = "its end" if goal.until == NO_STEP else until
        self.say(f"{what} until {until}, at most {in_words(goal.seconds)}")
        return self.environment.try_run(scenario, goal)

    def _left(self) -> float:
        return self.within - (time.monotonic() - self._started_at)

    def _drill(
        self,
        controls: list[DrillRun],
        until: int | None,
        within: Tolerance | None,
        rehearsed: tuple[Rehearsed, ...],
    ) -> Drill:
        on_notice = self.run.spec.checkpoint.on_notice
        return Drill(
            run=self.run.run_name,
            world_size=controls[0].world_size,
            until=until,
            seconds=time.monotonic() - self._started_at,
            within=within,
            curve=controls[0].curve(1),
            control_findings=findings_of_controls(controls, grace=self._grace, on_notice=on_notice),
            rehearsed=rehearsed,
            notes=(*self.environment.notes, *self._notes(until), *_unclear(rehearsed)),
        )

    def _notes(self, until: int | None) -> list[str]:
        notes = [BY_OUTPUT] if self._own is not None else []
        if not self._end_seen:
            text = (
                "the training did not end in the time given, so a resume from its last "
                "checkpoint was not rehearsed. A short training shows it"
            )
            return [*notes, text]
        if until is None or self.until is None or until >= self.until:
            return notes
        return [*notes, f"step {self.until} was not reached: all runs end with step {until}"]


_REPORTED = (
    "no step was reported in {time}. If the first one takes longer, raise --within; otherwise the "
    "script must call trainrun.report()"
)
_SHOWN = (
    "the output showed no step in {time}, so the drill cannot see where the script continues. Let "
    "it print its steps and give spec.progress a pattern for them; if they come later, raise "
    "--within"
)
BY_OUTPUT = (
    "steps and metrics are read from the output: a resume is known by the step with which it "
    "continues, and by its metrics from there"
)
NO_STEP = 1 << 62
"""No run reaches it."""
TRIES = 3
"""Kills at the end, at most: one before all ranks have reported the last step is too early."""
PATIENCE = 4.0
"""Times the duration of an undisturbed run that one to the end of the training may take."""

STORES = {
    "Kept": "",
    "SpoilNewest": " and damage to the newest checkpoint",
    "Away": f" and the store away for {AWAY:.0f} s",
}


def _unclear(rehearsed: tuple[Rehearsed, ...]) -> list[str]:
    names = sorted({name for verdict in rehearsed for name in verdict.unclear})
    text = (
        f"{some(names, 5)}: saved after a resume, the bytes differ from those of an undisturbed "
        "run. The drill cannot read this format, so it does not know whether the content differs"
    )
    return [text] if names else []


def _least(scenario: Scenario, control: DrillRun) -> float:
    """Seconds that a run with this fault takes at least."""
    away = AWAY if scenario.store == "Away" else 0.0
    return control.seconds + away + scenario.watched


def _not(name: FaultName, why: str) -> Rehearsed:
    return Rehearsed(scenario=Scenario(name=name), outcome="NotRehearsed", why_not=why)
