"""Which runs are not needed any more.

Layer: core, pure. Invariant: what the view does not know is kept: whoever created it knew more.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainrun.sweep.view import SweepView
from trainrun_operator.core.sweep.config import SweepConfig
from trainrun_operator.core.sweep.observation import TrialRun
from trainrun_operator.core.sweep.plan import DeleteTrial


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
