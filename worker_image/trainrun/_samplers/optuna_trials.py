"""Trials of a sweep's log as trials of Optuna.

Layer: beside `trainrun.checkpoint`, as `optuna_sampler`, which asks Optuna by them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from trainrun.sweep.space import FloatRange, IntRange, OneOf, Parameter, Scalar, same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainrun.sweep.records import TrialState as OurState
    from trainrun.sweep.view import TrialView

    Labels = Callable[[OneOf], tuple[Scalar, ...]]
    """As what Optuna knows the options of a choice: no two of them equal in Python."""

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
    """A trial as Optuna knows it, without fixed parameters."""
    state = STATES[trial.state]
    searched = [it for it in space if it.name in trial.params]
    return create_trial(
        state=state,
        value=trial.value if state == TrialState.COMPLETE else None,
        params={it.name: _known(it, trial.params[it.name], labels) for it in searched},
        distributions={it.name: _distribution(it, labels) for it in searched},
        intermediate_values=dict(trial.values),
    )


def texts(domain: OneOf) -> tuple[Scalar, ...]:
    """The options; as JSON where Python takes some of them for the same, as it does 1 and true."""
    options = domain.options
    return options if len(set(options)) == len(options) else tuple(map(json.dumps, options))


def places(domain: OneOf) -> tuple[int, ...]:
    """The place of each option: Optuna takes 1, 1.0 and true for the same one."""
    return tuple(range(len(domain.options)))


def _known(parameter: Parameter, value: Scalar, labels: Labels) -> Scalar:
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
