"""A sweep as a study of Optuna in a file: what optuna-dashboard and optuna.load_study open.

Layer: beside `trainrun.checkpoint`, as `optuna_sampler`. The study is a copy: nothing of
the sweep is ever read from it.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from trainrun._samplers.optuna_trials import frozen, texts

if TYPE_CHECKING:
    from pathlib import Path

    from trainrun.sweep.search import Objective
    from trainrun.sweep.space import Parameter
    from trainrun.sweep.view import SweepView, TrialView


def write_journal(
    file: Path, view: SweepView, objective: Objective, space: tuple[Parameter, ...], *, name: str
) -> None:
    """Write all trials, under their own numbers, into the study `name` of a new file.

    The log knows no time of the day: their dates are those of this call. Raises OSError.
    """
    file.touch(exist_ok=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # parts that are experimental, and say so every time
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(file))),
            study_name=name,
            direction=objective.goal,
        )
        study.set_metric_names([objective.metric])
        study.add_trials([_exported(it, space) for it in view.trials.values()])


def _exported(trial: TrialView, space: tuple[Parameter, ...]) -> FrozenTrial:
    made = frozen(trial, space, texts)
    if made.state == TrialState.PRUNED:
        made.value = trial.value  # as Optuna has it of trials that it has pruned itself
    for key, value in _attributes(trial, space).items():
        made.set_user_attr(key, value)
    return made


def _attributes(trial: TrialView, space: tuple[Parameter, ...]) -> dict[str, Any]:
    searched = {it.name for it in space}
    fixed = {name: value for name, value in trial.params.items() if name not in searched}
    told = {
        "trial": trial.number,
        "state": trial.state,
        "reason": trial.reason,
        "message": trial.message,
        "restarts": trial.restarts,
    }
    return {**told, "fixed": fixed} if fixed else told
