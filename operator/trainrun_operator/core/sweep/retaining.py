"""Which runs, and whose checkpoints, are not needed any more.

Layer: core, pure. Invariants: a run that the view does not know is kept, since whoever created it
knew more; what an open or an errored trial has saved stays, since it may go on from it; so does
that of the best ones that have ended; no checkpoint goes while a run of the trial is there, which
may still be saving. An open trial that is ahead displaces none of them: it may end worse, or fail.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainrun.sweep.results import ranked
from trainrun.sweep.view import SweepView
from trainrun_operator.core.sweep.config import SweepConfig
from trainrun_operator.core.sweep.observation import TrialRun
from trainrun_operator.core.sweep.plan import DeleteTrial


def cleared(log: SweepView, runs: Iterable[TrialRun], config: SweepConfig) -> tuple[int, ...]:
    """Numbers of the trials, in order."""
    if config.best_checkpoints is None:
        return ()
    ended = [it.trial for it in ranked(log, config.search.objective) if not it.trial.open]
    leading = ended[: config.best_checkpoints]
    kept = {trial.number for trial in leading} | {run.trial for run in runs}
    return tuple(
        trial.number
        for trial in log.trials.values()
        if trial.number not in kept and trial.state not in ("Open", "Errored")
    )


def deletions(
    log: SweepView, runs: Iterable[TrialRun], config: SweepConfig
) -> tuple[DeleteTrial, ...]:
    """Runs of openings that are closed, by name, but for the newest failed ones."""
    closed = [run for run in runs if _is_closed(log, run)]
    failed = [run for run in closed if run.phase == "Failed"]
    failed.sort(key=lambda run: (run.created, run.name), reverse=True)
    kept = {run.uid for run in failed[: config.failed_runs]}
    return tuple(
        DeleteTrial(name=run.name, uid=run.uid)
        for run in sorted(closed, key=lambda run: run.name)
        if run.uid not in kept
    )


def _is_closed(log: SweepView, run: TrialRun) -> bool:
    trial = log.trials.get(run.trial)
    if trial is None or run.opening > trial.opening:
        return False
    return run.opening < trial.opening or not trial.open
