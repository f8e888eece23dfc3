"""The part of a pod template that TrainRun reads itself; everything else passes through unread.

Layer: api. A full PodTemplateSpec schema would be hundreds of kilobytes and bind us to one version
of Kubernetes: the API server checks the rest of the template when the operator creates a worker
pod. The CRD leaves a template open, so the API server accepts a run with `labels: [a]` and refuses
only its pods. `shape_problem` finds templates that no pod can be made from, and names the field.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from trainrun.errors import InvalidSpec
from trainrun_operator.api.base import EachOnce, Model, Rule
from trainrun_operator.api.problems import sentences

DEFAULT_GRACE = 30
"""Seconds that a pod has to end, where its spec gives no time."""

LONGEST_GRACE = 24 * 3600
"""Upper limit in seconds; longer times are cut to it."""

WORKER_CONTAINER = "worker"
"""The container of this name trains, or the only one; among several, one must have this name."""

LONGEST_TEXT = 128 * 1024
"""Characters of a word or a value after its references are replaced: the limit of Linux."""

LONGEST_COMMAND = 2 * 1024 * 1024
"""Characters of a command line with the variables that it refers to: the limit of Linux."""

MOST_TEXT = 256 * 1024
"""Characters of all commands, arguments and variables of a pod."""

_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")


class TooLong(InvalidSpec):
    """A text is too long for a process once its references are replaced."""


class OpenModel(Model):
    """A model that keeps the fields it does not know."""

    model_config = ConfigDict(extra="allow")


Word = Annotated[str, Field(max_length=65536)]
"""One word of a command line."""


class EnvVar(OpenModel):
    """An environment variable of the training processes."""

    name: Annotated[str, Field(min_length=1, max_length=1024)]
    """Its name."""
    value: Annotated[str, Field(max_length=131072)] = ""
    """Its value; numbers and true/false must be quoted. Default: empty."""


class Resources(OpenModel):
    """What the container asks for; Kubernetes checks the amounts."""

    limits: dict[str, object] = Field(default_factory=dict, max_length=64)
    """The most that it may use, such as `nvidia.com/gpu: 1`."""
    requests: dict[str, object] = Field(default_factory=dict, max_length=64)
    """What its node must have free."""


class Container(OpenModel):
    """A container of a worker pod."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Its name. The container named "worker" trains, or the only one."""
    command: Annotated[tuple[Word, ...], Field(max_length=256)] = ()
    """What each training process runs, as a list of words."""
    args: Annotated[tuple[Word, ...], Field(max_length=1024)] = ()
    """More words after `command`."""
    working_dir: Annotated[str | None, Field(max_length=4096)] = None
    """Folder that the processes start in. Default: the image's; `trainrun run` uses the folder of
    the file."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=512), EachOnce("name")] = ()
    """Environment variables of the processes."""
    resources: Resources = Resources()
    """CPU, memory and GPUs of the whole worker."""

    @property
    def text_size(self) -> int:
        """Characters of command, args, and names and values of env."""
        words = sum(map(len, (*self.command, *self.args)))
        return words + sum(len(entry.name) + len(entry.value) for entry in self.env)

    @property
    def words(self) -> tuple[str, ...]:
        """Command and arguments as the kubelet passes them on, as far as `env` has values.

        Raises TooLong: a few short variables, each used twice in the next, would fill any memory.
        """
        env: dict[str, str] = {}
        words: list[str] = []
        length = 0
        for where, variable, text in self._needed():
            try:
                found = expanded(text, env)
            except TooLong as error:
                raise TooLong(f"{where} {error}") from error
            length += len(found)
            if length > LONGEST_COMMAND:
                raise TooLong(
                    f"command and args have more than {LONGEST_COMMAND} characters, with the env "
                    "that they refer to"
                )
            if variable:
                env[variable] = found
            else:
                words.append(found)
        return tuple(words)

    def _needed(self) -> Iterator[tuple[str, str, str]]:
        """(place, name, value) of the variables that the words refer to, then (place, "", word) of
        the words."""
        words = [
            *((f"command[{at}]", "", word) for at, word in enumerate(self.command)),
            *((f"args[{at}]", "", word) for at, word in enumerate(self.args)),
        ]
        names = {name for _, _, word in words for name in references(word)}
        variables: list[tuple[str, str, str]] = []
        for at, entry in reversed(tuple(enumerate(self.env))):  # each refers to those before it
            if entry.name in names and "value" in entry.model_fields_set:
                variables.append((f"env[{at}].value", entry.name, entry.value))
                names.update(references(entry.value))
        yield from reversed(variables)
        yield from words


def expanded(text: str, env: Mapping[str, str]) -> str:
    """Replace `$(NAME)` as the kubelet does: unknown names stay, `$$` stands for one dollar.

    Raises TooLong before it builds a longer text.
    """

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else env.get(match[2], match[0])

    growth = sum(len(value(match)) - len(match[0]) for match in _REFERENCE.finditer(text))
    if len(text) + growth > LONGEST_TEXT:
        raise TooLong(
            f"would have more than {LONGEST_TEXT} characters once its references are replaced"
        )
    return _REFERENCE.sub(value, text)


def references(text: str) -> Iterator[str]:
    """The names that `expanded` looks up in this text."""
    return (match[2] for match in _REFERENCE.finditer(text) if match[2] is not None)


def _size_of(containers: str) -> str:
    """CEL for the number of characters in command, args and env of these containers of a pod."""
    words = " + ".join(
        f"(has(c.{field}) ? c.{field}.map(w, size(w)).sum() : 0)" for field in ("command", "args")
    )
    entry = "size(e.name) + (has(e.value) ? size(e.value) : 0)"
    each = f"{words} + (has(c.env) ? c.env.map(e, {entry}).sum() : 0)"
    return f"(has(self.{containers}) ? self.{containers}.map(c, {each}).sum() : 0)"


FIELDS = (
    "image", "command", "args", "workingDir", "ports", "env", "envFrom", "resources", "volumeMounts"
)  # fmt: skip
"""Fields of a container; a name close to one of these is a typo."""


def misspelt(value: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """A message for each field of a container, anywhere in this document, that looks misspelt."""
    for name, inner in value.items():
        path = f"{above}{name}"
        if isinstance(inner, dict):
            yield from misspelt(inner, f"{path}.")
        elif name in ("containers", "initContainers") and isinstance(inner, list):
            for at, each in enumerate(inner):
                for field in each if isinstance(each, dict) else ():
                    close = difflib.get_close_matches(field, FIELDS, n=1, cutoff=0.85)
                    if close and close[0] != field:
                        yield f"{path}[{at}].{field}: unknown field; did you mean {close[0]}?"


class PodSpec(OpenModel):
    """The spec of a worker pod."""

    RULES = (
        Rule(
            cel=(
                "(size(self.containers) > 1 &&"
                f" !self.containers.exists(c, c.name == '{WORKER_CONTAINER}')) ||"
                " self.containers.exists(c,"
                f" (size(self.containers) == 1 || c.name == '{WORKER_CONTAINER}') &&"
                " ((has(c.command) && size(c.command) > 0) || (has(c.args) && size(c.args) > 0)))"
            ),
            message=(
                f'the container that trains (named "{WORKER_CONTAINER}", or the only one) needs a '
                "command or args that start the training, such as command: [python, train.py]"
            ),
            # Among several, only the name shows which one trains: see `shape_problem`.
            holds=lambda spec: bool(spec.candidates or spec.training.command or spec.training.args),
            path=("containers",),
        ),
        Rule(
            cel=f"{_size_of('containers')} + {_size_of('initContainers')} <= {MOST_TEXT}",
            message=(
                f"command, args and env of all containers together must have at most {MOST_TEXT} "
                "characters; put what is larger into a ConfigMap or the image"
            ),
            holds=lambda spec: (
                sum(c.text_size for c in (*spec.containers, *spec.init_containers)) <= MOST_TEXT
            ),
        ),
    )

    containers: Annotated[
        tuple[Container, ...], Field(min_length=1, max_length=32), EachOnce("name")
    ]
    """The containers; one of them trains."""
    init_containers: Annotated[tuple[Container, ...], Field(max_length=32), EachOnce("name")] = ()
    """Containers that run one after the other and end before the others start."""

    @property
    def grace(self) -> int:
        """Seconds between SIGTERM and SIGKILL, where the deletion of the pod names no time."""
        found = (self.model_extra or {}).get("terminationGracePeriodSeconds")
        if not isinstance(found, int) or isinstance(found, bool):
            return DEFAULT_GRACE
        return min(max(found, 0), LONGEST_GRACE)

    @property
    def candidates(self) -> tuple[str, ...]:
        """Names of the containers where it is unclear which one trains; else empty."""
        names = tuple(container.name for container in self.containers)
        return names if len(names) > 1 and WORKER_CONTAINER not in names else ()

    @property
    def training(self) -> Container:
        """The container that trains; where that is unclear, the first of `candidates`."""
        named = (c for c in self.containers if c.name == WORKER_CONTAINER)
        return next(named, self.containers[0])


class PodTemplate(OpenModel):
    """A PodTemplateSpec: metadata and spec of each worker pod."""

    spec: PodSpec
    """The spec of a worker pod. TrainRun passes on fields that it does not read."""

    def as_dict(self) -> dict[str, Any]:
        """The template exactly as the user wrote it, in JSON types."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


MOST_PROBLEMS = 3
"""Problems of a template that one message names."""

_EMPTY = BeforeValidator(lambda value: value or None)
"""Reads an empty value as absent."""

_Mapping = Annotated[dict[str, Any] | None, _EMPTY]
_List = Annotated[list[Any] | None, _EMPTY]
_Objects = Annotated[list[dict[str, Any]] | None, _EMPTY]


class _Shape(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class _Metadata(_Shape):
    labels: _Mapping = None
    annotations: _Mapping = None


class _Term(_Shape):
    match_fields: _List = None


class _Required(_Shape):
    node_selector_terms: Annotated[list[_Term] | None, _EMPTY] = None


class _NodeAffinity(_Shape):
    required_during_scheduling_ignored_during_execution: Annotated[_Required | None, _EMPTY] = None
    preferred_during_scheduling_ignored_during_execution: _List = None


class _Affinity(_Shape):
    node_affinity: Annotated[_NodeAffinity | None, _EMPTY] = None


class _Container(_Shape):
    volume_mounts: _Objects = None


class _Spec(_Shape):
    containers: list[_Container]
    volumes: _Objects = None
    tolerations: _List = None
    affinity: Annotated[_Affinity | None, _EMPTY] = None
    security_context: _Mapping = None


class _Template(_Shape):
    metadata: Annotated[_Metadata | None, _EMPTY] = None
    spec: _Spec


def shape_problem(template: PodTemplate) -> str:
    """Why no pod can be made from this template, with the wrong fields; "" where one can."""
    if names := template.spec.candidates:
        return (
            f"spec.containers: {', '.join(names)}: none of these is named "
            f'"{WORKER_CONTAINER}"; rename the container that trains to {WORKER_CONTAINER}'
        )
    try:
        _Template.model_validate(template.as_dict())
    except ValidationError as error:
        found = (problem for detail in error.errors() for problem in sentences(detail, _Template))
        return "; ".join(itertools.islice(found, MOST_PROBLEMS))
    return ""
