"""A sweep as a study of Optuna: one to ask for parameters, one in a file for other tools.

Layer: next to `trainrun.checkpoint`; the writer of a sweep's log loads it, a training script never
does. Optuna's study is never the truth: it is rebuilt from the log for every question, with a seed
from the sweep and the trial's number, so that the same question always gets the same answer.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from trainrun.sweep.records import TrialState as OurState
from trainrun.sweep.samplers import Suggestion, seed_of
from trainrun.sweep.search import (
    FloatRange,
    IntRange,
    Objective,
    OneOf,
    Parameter,
    Scalar,
    Search,
    choose,
    same,
)
from trainrun.sweep.view import SweepView, TrialView

Labels = Callable[[OneOf], tuple[Scalar, ...]]
"""The options of a choice in Optuna's form: no two of them equal in Python."""
STUDY = "sweep"
STATES: dict[OurState, TrialState] = {
    "Succeeded": TrialState.COMPLETE,
    "Stopped": TrialState.PRUNED,
    "Diverged": TrialState.FAIL,
    "Errored": TrialState.FAIL,
    "Skipped": TrialState.FAIL,
    "Open": TrialState.RUNNING,
}

optuna.logging.set_verbosity(optuna.logging.ERROR)


def frozen(trial: TrialView, space: Iterable[Parameter], labels: Labels) -> FrozenTrial:
    """A trial in Optuna's form, without fixed parameters."""
    state = STATES[trial.state]
    searched = [parameter for parameter in space if parameter.name in trial.params]
    return create_trial(
        state=state,
        value=trial.value if state == TrialState.COMPLETE else None,
        params={
            parameter.name: _label(parameter, trial.params[parameter.name], labels)
            for parameter in searched
        },
        distributions={parameter.name: _distribution(parameter, labels) for parameter in searched},
        intermediate_values=dict(trial.values),
    )


def texts(domain: OneOf) -> tuple[Scalar, ...]:
    """The options; as JSON if Python considers some of them equal, such as 1 and true."""
    options = domain.options
    return options if len(set(options)) == len(options) else tuple(map(json.dumps, options))


def places(domain: OneOf) -> tuple[int, ...]:
    """The place of each option: Optuna considers 1, 1.0 and true equal."""
    return tuple(range(len(domain.options)))


def _label(parameter: Parameter, value: Scalar, labels: Labels) -> Scalar:
    domain = parameter.domain
    if not isinstance(domain, OneOf):
        return value
    pairs = zip(labels(domain), domain.options, strict=True)
    return next(label for label, option in pairs if same(option, value))


def _distribution(parameter: Parameter, labels: Labels) -> BaseDistribution:
    match parameter.domain:
        case FloatRange(low, high, log, step):
            return FloatDistribution(low, high, log=log, step=step)
        case IntRange(low, high, log, step):
            return IntDistribution(low, high, log=log, step=step)
        case OneOf() as choice:
            return CategoricalDistribution(labels(choice))


class OptunaSampler:
    """Asks Optuna. It caches trials in Optuna's form, which saves time and changes no answer."""

    def __init__(self) -> None:
        self._cached: dict[int, tuple[TrialView, FrozenTrial]] = {}

    def __call__(self, view: SweepView, search: Search) -> Suggestion:
        """Parameters for the next trial. Raises whatever Optuna raises."""
        return _suggested(view, search, [self._of(trial, search) for trial in view.trials.values()])

    def _of(self, trial: TrialView, search: Search) -> FrozenTrial:
        cached = self._cached.get(trial.number)
        if cached is not None and cached[0] is trial:
            return cached[1]
        made = frozen(trial, search.space, places)
        made.__class__ = _Unchanging
        self._cached[trial.number] = (trial, made)
        return made


class _Unchanging(FrozenTrial):
    """A trial that never changes. Optuna's storage deep-copies each trial that it gets, which would
    take most of the time of an answer."""

    def __deepcopy__(self, memo: object) -> FrozenTrial:
        return copy.copy(self)


def _suggested(view: SweepView, search: Search, trials: list[FrozenTrial]) -> Suggestion:
    number = view.asked
    storage = optuna.storages.InMemoryStorage()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental samplers warn every time
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
    """A fresh sampler for the trial of this number."""
    seed = seed_of(search.seed, number)
    if search.sampler == "QMC":
        # One sequence for the sweep, with a place per trial. Other parameters are drawn.
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


def write_journal(
    file: Path, view: SweepView, objective: Objective, space: tuple[Parameter, ...], *, name: str
) -> None:
    """Write all trials, under their own numbers, into the study `name` of a new file.

    The log has no times of day, so the trials get the time of this call. Raises OSError.
    """
    file.touch(exist_ok=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental parts warn every time
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(file))),
            study_name=name,
            direction=objective.goal,
        )
        study.set_metric_names([objective.metric])
        study.add_trials([_exported(trial, space) for trial in view.trials.values()])


def _exported(trial: TrialView, space: tuple[Parameter, ...]) -> FrozenTrial:
    made = frozen(trial, space, texts)
    if made.state == TrialState.PRUNED:
        made.value = trial.value  # as in trials that Optuna has pruned itself
    for key, value in _attributes(trial, space).items():
        made.set_user_attr(key, value)
    return made


def _attributes(trial: TrialView, space: tuple[Parameter, ...]) -> dict[str, Any]:
    searched = {parameter.name for parameter in space}
    fixed = {name: value for name, value in trial.params.items() if name not in searched}
    attributes = {
        "trial": trial.number,
        "state": trial.state,
        "reason": trial.reason,
        "message": trial.message,
        "restarts": trial.restarts,
    }
    return {**attributes, "fixed": fixed} if fixed else attributes
