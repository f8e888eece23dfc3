"""Parameters chosen by Optuna's samplers, which learn from the trials before.

Layer: beside `trainrun.checkpoint`; whoever keeps a sweep's log loads it, a script that trains
never does. Optuna's study is never the truth: it is made anew from the log for every question, and
with a seed of the sweep's and the trial's number, so that whoever asks again is answered the same.
"""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING

import optuna
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from trainrun._samplers.optuna_trials import frozen, places
from trainrun.sweep.samplers import Suggestion, ask, seed_of
from trainrun.sweep.search import Search
from trainrun.sweep.space import FloatRange, IntRange, OneOf, Parameter, Scalar, choose

if TYPE_CHECKING:
    from trainrun.sweep.view import SweepView, TrialView

STUDY = "sweep"


class OptunaSampler:
    """Asks Optuna. It keeps trials in the form that Optuna knows, which saves time and changes no
    answer."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[TrialView, FrozenTrial]] = {}

    def __call__(self, view: SweepView, search: Search) -> Suggestion:
        """Parameters for the next trial. Raises whatever Optuna raises."""
        number = view.asked
        if number < len(search.first):
            return Suggestion(ask(search, number))
        return _suggested(view, search, [self._of(trial, search) for trial in view.trials.values()])

    def _of(self, trial: TrialView, search: Search) -> FrozenTrial:
        known = self._known.get(trial.number)
        if known is not None and known[0] is trial:
            return known[1]
        made = _kept(frozen(trial, search.space, places))
        self._known[trial.number] = (trial, made)
        return made


class _Kept(FrozenTrial):
    """A trial that nobody changes: the storage makes a deep copy of each trial that it is given,
    which would take most of the time of an answer."""

    def __deepcopy__(self, memo: object) -> FrozenTrial:
        return copy.copy(self)


def _kept(it: FrozenTrial) -> FrozenTrial:
    return _Kept(
        number=it.number,
        state=it.state,
        value=it.value,
        datetime_start=it.datetime_start,
        datetime_complete=it.datetime_complete,
        params=it.params,
        distributions=it.distributions,
        user_attrs=it.user_attrs,
        system_attrs=it.system_attrs,
        intermediate_values=it.intermediate_values,
        trial_id=it.number,
    )


def _suggested(view: SweepView, search: Search, trials: list[FrozenTrial]) -> Suggestion:
    number = view.asked
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
        study.add_trials(trials)
        trial = study.ask()
        params = choose(search.space, lambda parameter: _chosen(trial, parameter))
    after = storage.get_study_system_attrs(study_id)
    changed = {k: v for k, v in after.items() if view.study.get(k) != v}
    return Suggestion(params, study=changed)


def sampler_of(search: Search, number: int) -> BaseSampler:
    """A sampler as good as new, for the trial of this number."""
    seed = seed_of(search.seed, number)
    if search.sampler == "QMC":
        # One sequence for the sweep; each trial has its place there. What is not in it is drawn.
        return QMCSampler(
            scramble=True, seed=search.seed % 2**32, independent_sampler=RandomSampler(seed=seed)
        )
    return TPESampler(seed=seed)


def _chosen(trial: optuna.Trial, parameter: Parameter) -> Scalar:
    name = parameter.name
    match parameter.domain:
        case FloatRange(low, high, log, step):
            return trial.suggest_float(name, low, high, log=log, step=step)
        case IntRange(low, high, log, step):
            return trial.suggest_int(name, low, high, log=log, step=step)
        case OneOf(options):
            return options[int(trial.suggest_categorical(name, places(parameter.domain)))]
