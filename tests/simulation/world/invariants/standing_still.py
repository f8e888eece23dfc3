"""A run ends for want of progress only where its script has failed again and again without any.

Layer: simulation. What was gained is told by the steps that the processes have really done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.api.run.status_parts import Cause

if TYPE_CHECKING:
    from tests.simulation.world.invariants.case import Case
    from trainrun_operator.api.run.status import TrainRunStatus

OF_THE_SCRIPT = (
    Cause.APP_ERROR,
    Cause.ENDED_EARLY,
    Cause.OUT_OF_MEMORY,
    Cause.TERMINATED,
    Cause.HUNG,
)
"""What a bug of the script, or of its pod, looks like."""

IN_STEP = 1
"""Steps by which ranks that need each other may differ: the fastest need not have told its last."""


class StandingStill:
    """Judges the number of incidents in a row without progress, and the verdict that it gives."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._steps: dict[int, int] = {}
        """For each attempt the highest step that was really done."""

    def status(self, old: TrainRunStatus, new: TrainRunStatus) -> None:
        """A status was written."""
        for attempt in {old.attempt, new.attempt}:
            self._look(attempt)
        more = new.without_progress - old.without_progress
        last = new.incidents[-1] if new.incidents else None
        if more > 1 or (more == 1 and (last is None or last.cause not in OF_THE_SCRIPT)):
            self._case.wrong(f"{new.without_progress} incidents without progress, after {last}")
        failed = new.condition("Failed")
        if failed is not None and failed.reason == "NoProgress" and not old.finished:
            self._verdict(new)

    def _look(self, attempt: int) -> None:
        trainings = [agent.training for agent in self._case.world.gang(attempt)]
        done = [training.step for training in trainings if training is not None]
        self._steps[attempt] = max([self._steps.get(attempt, 0), *done])

    def _verdict(self, new: TrainRunStatus) -> None:
        case, number = self._case, new.without_progress
        if not 0 < case.world.config.no_progress_limit <= number:
            case.wrong(f"NoProgress after {number} incidents in a row")
        of_the_script = [i.attempt for _, i in sorted(case.settled.items()) if _counts(i.cause)]
        first = of_the_script[-number:][0]
        row = (case.records[attempt].resume_point for attempt in sorted(case.records))
        points = [p.step for p in row if p is not None and p.attempt >= first]
        if points:
            case.wrong(f"NoProgress, and since attempt {first} step {max(points)} was resumed")
        if case.heartbeats_lost or not case.world.together or not case.world.reports:
            return
        before = max((s for a, s in self._steps.items() if a < first), default=0)
        during = max((s for a, s in self._steps.items() if a >= first), default=0)
        if during > before + IN_STEP:
            case.wrong(f"NoProgress, and since attempt {first} step {during} was reached")


def _counts(cause: str) -> bool:
    return cause in OF_THE_SCRIPT
