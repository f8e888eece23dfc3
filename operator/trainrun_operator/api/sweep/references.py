"""What a template says of the parameters of its trial: `$(TRAINRUN_PARAM_LR)`.

Layer: api. Kubernetes, and the local world, leave a name that is not there as it stands: a training
would get `--lr=$(TRAINRUN_PARAM_LR)` as a word. So each name has to be there in every trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainrun.contract import variables
from trainrun_operator.api.pod_template import Container, PodTemplate, references
from trainrun_operator.api.sweep.checks import Problem
from trainrun_operator.api.sweep.values import SearchedParameter, variable_of

TEMPLATE = ("run", "workers", "template", "spec")


def known_parameters(
    template: PodTemplate, space: tuple[SearchedParameter, ...], fixed: Mapping[str, Any]
) -> Iterator[Problem]:
    """The template refers to parameters that are there in every trial, where they are there."""
    always = {variable_of(it.name) for it in space if not it.when} | {*map(variable_of, fixed)}
    sometimes = {variable_of(it.name): it.name for it in space if it.when}
    trains = template.spec.training
    places = (
        *((("containers", at), it) for at, it in enumerate(template.spec.containers)),
        *((("initContainers", at), it) for at, it in enumerate(template.spec.init_containers)),
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
    """Where something is referred to in what Kubernetes expands, and what it is."""
    texts = (
        *((("command", at), word) for at, word in enumerate(container.command)),
        *((("args", at), word) for at, word in enumerate(container.args)),
        *((("env", at, "value"), entry.value) for at, entry in enumerate(container.env)),
    )
    return ((path, name) for path, text in texts for name in references(text))


def _unknown(name: str, always: set[str]) -> str:
    there = ", ".join(sorted(always)) or "none"
    return f"must not refer to {name}, which no parameter of space or fixed becomes; there: {there}"


def _sometimes(name: str, parameter: str) -> str:
    return (
        f"must not refer to {name}: {parameter} is not there in every trial (its when); give the "
        f"container's env a {name} with the value for the others, or read it by trainrun.get_params"
    )


def _elsewhere(name: str, trains: Container) -> str:
    return f"must not refer to {name}: parameters are handed to the container {trains.name} alone"
