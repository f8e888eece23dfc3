"""Whose checkpoints are not needed any more.

Layer: core, pure. Invariants: what an open or an errored trial has saved stays, since it may go on
from it; so does that of the best ones that have ended; nothing goes while a run of the trial is
there, which may still be saving. An open trial that is ahead displaces none of them: it may end
worse, or fail.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainrun.sweep.results import ranked
from trainrun.sweep.view import SweepView
from trainrun_operator.core.sweep.config import SweepConfig
from trainrun_operator.core.sweep.observation import TrialRun


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
