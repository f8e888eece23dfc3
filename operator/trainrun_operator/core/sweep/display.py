"""The status of a sweep, for people: bounded, whatever the number of trials.

Layer: core, pure.
"""

from __future__ import annotations

import json
from dataclasses import replace

from trainrun.sweep.records import written
from trainrun.sweep.results import best
from trainrun.sweep.search import Objective
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.api.sweep.status import (
    MAX_LAST_ENDED,
    MAX_MESSAGE,
    MAX_RUNNING,
    BestTrial,
    EndedTrial,
    TrainSweepStatus,
    TrialCounts,
)
from trainrun_operator.core.sweep.config import SweepConfig
from trainrun_operator.core.sweep.observation import SweepObservation
from trainrun_operator.core.sweep.plan import SweepPlan

_MAX_PARAMS = 4096
"""Characters of the best trial's parameters as JSON."""


def sweep_status(
    observation: SweepObservation,
    config: SweepConfig,
    plan: SweepPlan,
    *,
    before: TrainSweepStatus,
) -> TrainSweepStatus:
    """What to say; where the log is not known, what was said `before` of phase and trials stays."""
    verdict = plan.verdict
    view = observation.log if isinstance(observation.log, SweepView) else SweepView()
    # What is known of the log must not be forgotten because nobody can read it now.
    known = view if view.position >= before.position else None
    objective = config.search.objective
    said = before if known is None else status_of_log(known, objective, trials=config.trials)
    running = tuple(sorted(run.trial for run in observation.runs if run.live)[:MAX_RUNNING])
    return replace(
        said,
        phase=before.phase if known is None else verdict.phase,
        reason=verdict.reason,
        message=verdict.message[:MAX_MESSAGE],
        running=before.running if known is None else running,
    )


def status_of_log(view: SweepView, objective: Objective, *, trials: int | None) -> TrainSweepStatus:
    """What the log alone says; `trials` is the budget, None: it is not known."""
    ended = [trial for trial in view.trials.values() if not trial.open]
    of_all = "" if trials is None else f"/{max(trials, view.asked)}"
    return replace(
        _phase(view),
        asked=view.asked,
        trials=TrialCounts(
            open=view.count("Open"),
            succeeded=view.count("Succeeded"),
            stopped=view.count("Stopped"),
            diverged=view.count("Diverged"),
            errored=view.count("Errored"),
            skipped=view.count("Skipped"),
            text=f"{len(ended)}{of_all}",
        ),
        best=_best(view, objective),
        last_ended=tuple(_ended(trial) for trial in ended[-MAX_LAST_ENDED:]),
        active_seconds=int(view.active),
        position=view.position,
    )


def _phase(view: SweepView) -> TrainSweepStatus:
    if view.end is None:
        message = "its log has no end, and cannot tell whether somebody works on it now"
        return TrainSweepStatus(phase="Running", reason="Unfinished", message=message)
    end = view.end.record
    return TrainSweepStatus(phase=end.verdict, reason=end.reason, message=end.message[:MAX_MESSAGE])


def _best(view: SweepView, objective: Objective) -> BestTrial | None:
    found = best(view, objective)
    if found is None:
        return None
    params = dict(found.trial.params)
    return BestTrial(
        trial=found.trial.number,
        value=written(found.own.value),
        step=found.own.step,
        text=f"{found.own.value:.6g}",
        params=params if len(json.dumps(params)) <= _MAX_PARAMS else {},
    )


def _ended(trial: TrialView) -> EndedTrial:
    return EndedTrial(
        trial=trial.number,
        state=trial.state,
        reason=trial.reason,
        message=trial.message[:MAX_MESSAGE],
        value="" if trial.value is None else written(trial.value),
        restarts=trial.restarts,
    )
