"""Parameters chosen by Optuna's samplers, which learn from the trials before.

Layer: beside `trainrun.checkpoint`; whoever keeps a sweep's log loads it, a script that trains
never does. Optuna's study is never the truth: it is made anew from the log for every question, and
with a seed of the sweep's and the trial's number, so that whoever asks again is answered the same.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import TYPE_CHECKING

import optuna
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler

from trainrun.optuna_trials import frozen, places
from trainrun.sweep.samplers import Suggestion, ask
from trainrun.sweep.search import Search
from trainrun.sweep.space import FloatRange, IntRange, OneOf, Parameter, Scalar, choose

if TYPE_CHECKING:
    from trainrun.sweep.view import SweepView

STUDY = "sweep"


def suggest(view: SweepView, search: Search) -> Suggestion:
    """Parameters for the next trial. Raises whatever Optuna raises."""
    number = view.asked
    if number < len(search.first):
        return Suggestion(ask(search, number))
    storage = optuna.storages.InMemoryStorage()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # samplers that are experimental, and say so every time
        study = optuna.create_study(
            storage=storage,
            study_name=STUDY,
            direction=search.objective.goal,
            sampler=sampler_of(search, number),
        )
        study_id = storage.get_study_id_from_name(STUDY)
        for key, value in view.study.items():
            storage.set_study_system_attr(study_id, key, value)
        study.add_trials([frozen(trial, search.space, places) for trial in view.trials.values()])
        trial = study.ask()
        params = choose(search.space, lambda parameter: _chosen(trial, parameter))
    after = storage.get_study_system_attrs(study_id)
    changed = {k: v for k, v in after.items() if view.study.get(k) != v}
    return Suggestion(params, study=changed)


def sampler_of(search: Search, number: int) -> BaseSampler:
    """A sampler as good as new, for the trial of this number."""
    seed = _seed(search.seed, number)
    if search.sampler == "QMC":
        # One sequence for the sweep; each trial has its place there. What is not in it is drawn.
        return QMCSampler(
            scramble=True, seed=search.seed % 2**32, independent_sampler=RandomSampler(seed=seed)
        )
    return TPESampler(seed=seed)


def _seed(seed: int, number: int) -> int:
    digest = hashlib.sha256(f"{seed}:{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _chosen(trial: optuna.Trial, parameter: Parameter) -> Scalar:
    name = parameter.name
    match parameter.domain:
        case FloatRange(low, high, log, step):
            return trial.suggest_float(name, low, high, log=log, step=step)
        case IntRange(low, high, log, step):
            return trial.suggest_int(name, low, high, log=log, step=step)
        case OneOf(options):
            return options[int(trial.suggest_categorical(name, places(parameter.domain)))]
