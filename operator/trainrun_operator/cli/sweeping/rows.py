"""A sweep as a table: every trial with its parameters and what it has come to.

Layer: cli; pure.
"""

from __future__ import annotations

from trainrun.sweep.results import standing
from trainrun.sweep.search import Objective
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.cli.sweeping.news import Row
from trainrun_operator.cli.sweeping.texts import first_line
from trainrun_operator.cli.sweeping.trials import LocalTrial, LocalTrials


def rows_of(view: SweepView, trials: LocalTrials | None, objective: Objective) -> tuple[Row, ...]:
    """By number; `trials` is what this machine knows of their runs, if it leads the sweep."""
    return tuple(
        row_of(trial, None if trials is None else trials.of(trial), objective)
        for trial in view.trials.values()
    )


def row_of(trial: TrialView, run: LocalTrial | None, objective: Objective) -> Row:
    """One trial; `run` is what this machine knows of its run, if it does."""
    own = standing(trial, objective)
    step = None if own is None else own.step
    if run is not None and run.status.progress.step is not None:
        step = run.status.progress.step
    return Row(
        trial=trial.number,
        state=_state(trial, run),
        params=trial.params,
        value=None if own is None else own.value,
        step=step,
        restarts=run.status.restarts if trial.open and run is not None else trial.restarts,
        remark=_remark(trial),
    )


def _state(trial: TrialView, run: LocalTrial | None) -> str:
    if not trial.open:
        return trial.state
    if run is None:
        return "Open"
    if run.task is not None:
        return "Saving" if run.suspend else "Running"
    return "Ending" if run.status.finished else "Saved"


def _remark(trial: TrialView) -> str:
    if trial.state in ("Open", "Succeeded"):
        return "" if trial.duplicate_of is None else f"same as trial {trial.duplicate_of}"
    return first_line(f"{trial.reason}: {trial.message}" if trial.message else trial.reason)
