"""The status of a sweep, for people: bounded, whatever the number of trials.

Layer: core, pure.
"""

from __future__ import annotations

import json

from trainrun.sweep.records import written
from trainrun.sweep.results import best
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
from trainrun_operator.core.sweep.observation import SweepObservation, TrialRun
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
    said = before if known is None else _of_trials(known, observation.runs, config)
    return TrainSweepStatus(
        phase=before.phase if known is None else verdict.phase,
        reason=verdict.reason,
        message=verdict.message[:MAX_MESSAGE],
        asked=said.asked,
        trials=said.trials,
        best=said.best,
        running=said.running,
        last_ended=said.last_ended,
        active_seconds=said.active_seconds,
        position=said.position,
    )


def _of_trials(
    view: SweepView, runs: tuple[TrialRun, ...], config: SweepConfig
) -> TrainSweepStatus:
    ended = [trial for trial in view.trials.values() if not trial.open]
    return TrainSweepStatus(
        asked=view.asked,
        trials=TrialCounts(
            open=view.count("Open"),
            succeeded=view.count("Succeeded"),
            stopped=view.count("Stopped"),
            diverged=view.count("Diverged"),
            errored=view.count("Errored"),
            skipped=view.count("Skipped"),
            text=f"{len(ended)}/{max(config.trials, view.asked)}",
        ),
        best=_best(view, config),
        running=tuple(sorted(run.trial for run in runs if run.live)[:MAX_RUNNING]),
        last_ended=tuple(_ended(trial) for trial in ended[-MAX_LAST_ENDED:]),
        active_seconds=int(view.active),
        position=view.position,
    )


def _best(view: SweepView, config: SweepConfig) -> BestTrial | None:
    found = best(view, config.search.objective)
    if found is None:
        return None
    params = dict(found.trial.params)
    return BestTrial(
        trial=found.trial.number,
        value=written(found.own.value),
        step=found.own.step,
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
