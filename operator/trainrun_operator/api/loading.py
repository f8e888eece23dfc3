"""From the text of a file to a resource, or to every problem of the file at once.

Layer: api. No I/O: the caller reads the file. What is accepted is what the API server accepts; the
CRD (trainrun_operator.api.crd) is made from the same models.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trainrun.errors import InvalidSpec
from trainrun_operator.api.base import BROKEN_RULE, Model
from trainrun_operator.api.places import DEEPEST, Place, too_deep, without_nulls, without_unknown
from trainrun_operator.api.problems import path as path_of
from trainrun_operator.api.problems import sentences, shown
from trainrun_operator.api.resources import TRAINRUN, M, Resource
from trainrun_operator.api.run.resource import TrainRun
from trainrun_operator.api.yaml_document import read_document


class InvalidFile(InvalidSpec):
    """A file that holds no valid resource; the message lists every problem, one per line."""

    def __init__(self, *, source: str, problems: tuple[str, ...]) -> None:
        head = f"{source}: {len(problems)} problem{'s' if len(problems) > 1 else ''}"
        super().__init__("\n  ".join([head, *problems]))
        self.source = source
        """The file."""
        self.problems = problems
        """One sentence each: path, value, what is allowed."""


def load_trainrun(
    text: str, *, source: str, overrides: Mapping[str, object] | None = None
) -> TrainRun:
    """The TrainRun that `text` (YAML or JSON) holds; `source` names it in errors.

    `overrides` replaces values before anything is checked: `{"spec.workers.replicas": 2}`. A
    `status` is ignored, as by kubectl. Raises InvalidSpec; its subclass InvalidFile when it is the
    fields that are wrong.
    """
    return load(text, TRAINRUN, source=source, overrides=overrides)


def load(
    text: str,
    resource: Resource[M],
    *,
    source: str,
    overrides: Mapping[str, object] | None = None,
) -> M:
    """The resource of this kind that `text` holds; see `load_trainrun`."""
    document = read_document(text, source=source, kind=resource.kind)
    return read(document, resource, source=source, overrides=overrides)


def read(
    document: dict[str, Any],
    resource: Resource[M],
    *,
    source: str,
    overrides: Mapping[str, object] | None = None,
    stored: bool = False,
) -> M:
    """The resource in a document that was parsed already; see `load_trainrun`.

    `stored`: the API server has it, and has taken out what is misspelt. So a field that is not
    known is a newer version's, whose CRD is there before its operator, and is left out.
    """
    _check_kind(document, resource, source)
    document.pop("status", None)
    for path, value in (overrides or {}).items():
        _override(document, path, value)
    # What is read below recurs: at some hundred levels each part of it would give up its own way.
    if (deep := too_deep(document.get("spec"), ("spec",))) is not None:
        problem = f"{path_of(deep)}: is nested more than {DEEPEST} levels deep"
        raise InvalidFile(source=source, problems=(problem,))
    document = without_nulls(document, resource.model)
    if stored:
        document = without_unknown(document, resource.model)
    try:
        return _validate(document, resource.model)
    except ValidationError as error:
        found = tuple(dict.fromkeys(_problems(document, resource.model, error)))
        raise InvalidFile(source=source, problems=found) from error


def _check_kind(document: dict[str, Any], resource: Resource[Any], source: str) -> None:
    """Say at once that this is something else: everything after would be noise."""
    for field, wanted in resource.head().items():
        if field not in document:
            raise InvalidSpec(f"{source}: {field} is missing; add {field}: {wanted}")
        if document[field] != wanted:
            raise InvalidSpec(
                f"{source}: {field} is {shown(document[field])}; {wanted} is needed here"
            )


def _override(document: dict[str, Any], path: str, value: object) -> None:
    *parents, last = path.split(".")
    owner = document
    for key in parents:
        child = owner.get(key)
        if child is None:
            child = owner[key] = {}
        if not isinstance(child, dict):
            return  # not a mapping: the check names that, and the override has no place
        owner = child
    owner[last] = value


def _validate(document: dict[str, Any], model: type[M]) -> M:
    # JSON mode: strict about types (no "4" for 4) without refusing a list for a tuple. Names as in
    # the CRD only: `max_failures` would be pruned by the API server.
    return model.model_validate_json(
        json.dumps(document), strict=True, by_alias=True, by_name=False
    )


def _problems(document: dict[str, Any], model: type[Model], error: ValidationError) -> list[str]:
    """Every problem, also those that only show when others are out of the way.

    Rules over several fields are not looked at while one of the fields is wrong. So the wrong
    values are taken out, which leaves the defaults, and the rest is checked again, until nothing
    new comes.
    """
    rest = copy.deepcopy(document)
    found: list[str] = []
    removed: set[Place] = set()
    while True:
        fresh = [
            detail
            for detail in error.errors(include_url=False)
            if not _is_consequence(detail, removed)
        ]
        found += [line for detail in fresh for line in sentences(detail, model)]
        taken = {place for detail in fresh for place in _to_remove(detail) if _remove(rest, place)}
        if not taken:
            return found
        removed |= taken
        try:
            _validate(rest, model)
        except ValidationError as again:
            error = again
        else:
            return found


def _is_consequence(detail: ErrorDetails, removed: set[Place]) -> bool:
    """Whether it is there only because of others: entries that failed, or what we took out."""
    if detail["type"] == "too_short":
        return bool(detail["input"])
    if detail["type"] == BROKEN_RULE:  # broken by a default in the place of what we took out
        return all((*detail["loc"], *rule.path) in removed for rule in detail["ctx"]["broken"])
    return detail["type"] == "missing" and detail["loc"] in removed


def _to_remove(detail: ErrorDetails) -> list[Place]:
    """What has to go so that the next check gets past this error: of a list, always the whole."""
    places = [detail["loc"]]
    if detail["type"] == BROKEN_RULE:
        places = [(*detail["loc"], *broken.path) for broken in detail["ctx"]["broken"]]
    return [
        tuple(itertools.takewhile(lambda part: isinstance(part, str), place)) for place in places
    ]


def _remove(document: dict[str, Any], place: Place) -> bool:
    """Take out the value at `place`, if it is still there; the document itself stays."""
    if not place:
        return False
    *parents, last = place
    owner: Any = document
    for key in parents:
        owner = owner.get(key, {}) if isinstance(owner, dict) else {}
    if not isinstance(owner, dict) or last not in owner:
        return False
    del owner[last]
    return True
