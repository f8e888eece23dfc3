"""Rules of a TrainSweep over several fields: the space, the needs of each sampler, references.

Layer: api. Each problem is a path below `spec` and what is allowed there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainrun.contract import variables
from trainrun.sweep.search import same
from trainrun_operator.api.pod_template import Container, PodTemplate, references
from trainrun_operator.api.sweep.values import (
    FloatDomain,
    IntDomain,
    SearchedParameter,
    variable_of,
)

MAX_GRID = 10_000
"""The most points that a grid may have."""

MAX_PARAMETERS = 32 * 1024
"""Characters of a trial's parameters as JSON: Linux takes 128 KiB in one variable, and a trial's
object has them twice."""

ROUNDING = 1e-9
"""Tolerance for steps: 0.3 / 0.1 must count as 3."""

Problem = tuple[tuple[int | str, ...], str]


def names_given_once(
    space: tuple[SearchedParameter, ...], fixed: Mapping[str, Any]
) -> Iterator[Problem]:
    """Each name, and each environment variable made from it, is given once."""
    places: list[Problem] = [
        *((("space", at, "name"), parameter.name) for at, parameter in enumerate(space)),
        *((("fixed", name), name) for name in fixed),
    ]
    taken: dict[str, str] = {}
    for path, name in places:
        other = taken.get(variable_of(name), "")
        taken.setdefault(variable_of(name), name)
        if other == name:
            yield path, f"must not give {name} a second time"
        elif other:
            yield path, f"must not become the same variable as {other}: {variable_of(name)}"


def conditions(space: tuple[SearchedParameter, ...]) -> Iterator[Problem]:
    """Conditions refer to earlier parameters, and to values that these can have."""
    before: dict[str, SearchedParameter] = {}
    for at, parameter in enumerate(space):
        for condition, when in enumerate(parameter.when):
            path = ("space", at, "when", condition)
            if when.name not in before:
                yield (*path, "name"), "must be a parameter listed before this one in space"
                continue
            for value in when.is_in:
                if not allows(before[when.name], value):
                    yield (
                        (*path, "in"),
                        f"must list values of {when.name}; {json.dumps(value)} is not one",
                    )
        before[parameter.name] = parameter


def first_trials(
    space: tuple[SearchedParameter, ...], trials: tuple[Mapping[str, Any], ...]
) -> Iterator[Problem]:
    """The first trials of a user lie in the space."""
    by_name = {parameter.name: parameter for parameter in space}
    for at, trial in enumerate(trials):
        for name, value in trial.items():
            if name not in by_name:
                there = ", ".join(by_name)
                yield ("firstTrials", at), f"must not name {name}; parameters of space: {there}"
            elif not allows(by_name[name], value):
                yield ("firstTrials", at, name), f"must be {_described(by_name[name])}"


def _described(parameter: SearchedParameter) -> str:
    domain = parameter.real or parameter.whole
    if domain is None:
        return f"one of {', '.join(map(json.dumps, parameter.choice or ()))}"
    kind = "a number" if parameter.whole is None else "a whole number"
    steps = "" if domain.step in (None, 1) else f" in steps of {domain.step}"
    return f"{kind} from {domain.low} to {domain.high}{steps}, as space says"


def size(space: tuple[SearchedParameter, ...], fixed: Mapping[str, Any]) -> Iterator[Problem]:
    """The parameters of every possible trial fit into an environment variable."""
    given = [(name, _length(value)) for name, value in fixed.items()]
    for parameter in space:
        lengths = (_length(option) for option in parameter.choice or ())
        given.append((parameter.name, max(lengths, default=25)))
    longest = sum(len(name) + room + len('"": , ') for name, room in given)
    if longest > MAX_PARAMETERS:
        message = (
            f"must have at most {MAX_PARAMETERS} characters of JSON per trial, with fixed and the "
            f"longest options; it has {longest}"
        )
        yield ("space",), message


def _length(value: Any) -> int:
    return len(json.dumps(value))


def grid(space: tuple[SearchedParameter, ...]) -> Iterator[Problem]:
    """Every point of the space can be listed, and there are at most MAX_GRID."""
    listed = True
    for at, parameter in enumerate(space):
        if parameter.when:
            yield ("space", at, "when"), "must be absent with the sampler Grid"
        options = parameter.choice or ()
        for place, option in enumerate(options):
            if any(same(option, other) for other in options[:place]):
                message = "must be listed once: a Grid tries every combination once"
                yield ("space", at, "choice", place), message
        if parameter.real is not None and parameter.real.step is None:
            listed = False
            yield ("space", at, "float", "step"), "must be given with the sampler Grid"
    size = math.prod(points(parameter) for parameter in space) if listed else 0
    if size > MAX_GRID:
        yield ("space",), f"must have at most {MAX_GRID} points for a Grid; it has {size}"


def numbers(space: tuple[SearchedParameter, ...]) -> Iterator[Problem]:
    """The space has something that CMA-ES can search; all other parameters are drawn at random."""
    if not any(_varies(parameter) and not parameter.when for parameter in space):
        message = (
            "must have at least one float or int with more than one value and no when for the "
            "sampler CmaEs; use TPE, which takes any space"
        )
        yield ("space",), message


def _varies(parameter: SearchedParameter) -> bool:
    domain = parameter.real or parameter.whole
    return domain is not None and domain.low < domain.high


def points(parameter: SearchedParameter) -> int:
    """How many values a parameter of a grid has."""
    domain = parameter.real or parameter.whole
    if domain is None:
        return len(parameter.choice or ())
    # Counted, not listed: one line of a file can give a range of a million million numbers.
    return math.floor((domain.high - domain.low) / (domain.step or 1) + ROUNDING) + 1


def allows(parameter: SearchedParameter, value: Any) -> bool:
    """Whether a parameter can have this value."""
    domain = parameter.real or parameter.whole
    if domain is None:
        return any(same(value, option) for option in parameter.choice or ())
    if isinstance(value, bool | str):
        return False
    whole = parameter.whole is None or isinstance(value, int)
    return whole and domain.low <= value <= domain.high and _on_step(value, domain)


def _on_step(value: float, domain: FloatDomain | IntDomain) -> bool:
    if domain.step is None:
        return True
    steps = (value - domain.low) / domain.step
    return abs(steps - round(steps)) < ROUNDING


TEMPLATE = ("run", "workers", "template", "spec")


def known_parameters(
    template: PodTemplate, space: tuple[SearchedParameter, ...], fixed: Mapping[str, Any]
) -> Iterator[Problem]:
    """The template refers only to parameters that every trial has, in the container that trains."""
    always = {variable_of(axis.name) for axis in space if not axis.when} | {
        *map(variable_of, fixed)
    }
    sometimes = {variable_of(axis.name): axis.name for axis in space if axis.when}
    trains = template.spec.training
    places = (
        *((("containers", at), container) for at, container in enumerate(template.spec.containers)),
        *(
            (("initContainers", at), container)
            for at, container in enumerate(template.spec.init_containers)
        ),
    )
    for place, container in places:
        own = {entry.name for entry in container.env}
        for path, name in _references(container):
            if name in own or not name.startswith(variables.PARAMETER_PREFIX):
                continue
            if container is not trains:
                yield (*TEMPLATE, *place, *path), _elsewhere(name, trains)
            elif name in sometimes:
                yield (*TEMPLATE, *place, *path), _sometimes(name, sometimes[name])
            elif name not in always:
                yield (*TEMPLATE, *place, *path), _unknown(name, always)


def _references(container: Container) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """(path, name) of each reference in the texts that Kubernetes expands."""
    texts = (
        *((("command", at), word) for at, word in enumerate(container.command)),
        *((("args", at), word) for at, word in enumerate(container.args)),
        *((("env", at, "value"), entry.value) for at, entry in enumerate(container.env)),
    )
    return ((path, name) for path, text in texts for name in references(text))


def _unknown(name: str, always: set[str]) -> str:
    there = ", ".join(sorted(always)) or "none"
    return f"must not refer to {name}: no parameter of space or fixed sets it; known: {there}"


def _sometimes(name: str, parameter: str) -> str:
    return (
        f"must not refer to {name}: some trials lack {parameter} (its when); add {name} to the "
        "container's env with a value for those, or read it with trainrun.get_params"
    )


def _elsewhere(name: str, trains: Container) -> str:
    return f"must not refer to {name}: only the container {trains.name} gets parameters"
