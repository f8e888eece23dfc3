"""Loads a resource from the text of a file, or reports every problem of the file at once.

Layer: api. No I/O: the caller reads the file. It accepts what the API server accepts, since the
CRD (trainrun_operator.api.crd) is made from the same models, and reads YAML as kubectl does. In
addition it refuses container fields that look misspelt: the API server would drop them.
Differences to yaml.safe_load, all towards what the API server gets: a duplicate key is an error,
dates stay strings, and values that JSON cannot hold are refused.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Collection, Hashable, Mapping
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trainrun.errors import InvalidSpec
from trainrun_operator.api.base import API_VERSION, BROKEN_RULE, Model
from trainrun_operator.api.pod_template import misspelt
from trainrun_operator.api.problems import (
    DEEPEST,
    Place,
    literal,
    sentences,
    too_deep,
    without_nulls,
    without_unknown,
)
from trainrun_operator.api.problems import path as path_of
from trainrun_operator.api.resources import TRAINRUN, M, Resource, TrainRun

MOST_VALUES = 100_000
"""Keys and values of a document; an object in a cluster cannot hold that many."""

_EXPONENT = re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
"""Numbers that PyYAML alone reads as strings."""


class _Loader(yaml.SafeLoader):
    """SafeLoader without timestamps, with unique keys, and with a limit on expanded aliases."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the attribute's name and type are PyYAML's
        first: [entry for entry in entries if entry[0] != "tag:yaml.org,2002:timestamp"]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As in SafeLoader, with a depth limit: Python's recursion limit varies by environment."""
        if self._depth > DEEPEST:
            raise yaml.composer.ComposerError(
                None,
                None,
                f"its values are nested more than {DEEPEST} levels deep",
                self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_document(self, node: yaml.Node) -> Any:
        """As in SafeLoader, but first refuse a document that its aliases make huge."""
        values, levels = _extent(node, {})
        if values > MOST_VALUES:
            raise _refused(f"the document has more than {MOST_VALUES} values", node)
        if levels > DEEPEST:
            raise _refused(
                f"the document's values are nested more than {DEEPEST} levels deep", node
            )
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As in SafeLoader, but a duplicate key is an error at its second place."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            # Keys of a merge (`<<`) may be overridden: that is its purpose.
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                break  # SafeLoader reports it
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} appears twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# PyYAML follows YAML 1.1, where 1e-5 without a dot is a string; kubectl reads a number.
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def _refused(why: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(
        None, None, f"with its aliases expanded, {why}", node.start_mark
    )


def _extent(node: yaml.Node, sizes: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How many values and levels the node has with aliases expanded; `sizes`: of other nodes.

    It recurses only as deep as the text is nested, since an alias names an earlier node.
    """
    if id(node) in sizes:
        return sizes[id(node)]
    sizes[id(node)] = (1, 1)  # a node that contains itself is refused elsewhere
    if isinstance(node, yaml.MappingNode):
        inner = [part for pair in node.value for part in pair]
    else:
        inner = node.value if isinstance(node, yaml.SequenceNode) else []
    parts = [_extent(part, sizes) for part in inner]
    values = 1 + sum(values for values, _ in parts)
    levels = 1 + max((levels for _, levels in parts), default=0)
    sizes[id(node)] = (values, levels)
    return sizes[id(node)]


def read_document(
    text: str, *, source: str, kind: str, kinds: Collection[str] = ()
) -> dict[str, Any]:
    """The mapping that `text` holds; errors name `source` and the expected `kind`.

    Among several documents it is the only one whose kind is in `kinds`. Raises InvalidSpec when
    `text` is not YAML, holds no such document or several, or no mapping.
    """
    try:
        documents = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        raise InvalidSpec(f"{_place(source, error)}: not valid YAML: {_words(error)}") from error
    except yaml.YAMLError as error:
        raise InvalidSpec(f"{source}: not valid YAML: {error}") from error
    if not documents:
        raise InvalidSpec(f"{source}: the file is empty; a {kind} is needed")
    wanted = kinds or (kind,)
    named = [
        document
        for document in documents
        if isinstance(document, dict) and document.get("kind") in wanted
    ]
    if kinds and len(named) == 1:
        documents = named
    if len(documents) > 1:
        problem = f"{source}: the file holds {len(documents)} YAML documents"
        if len(named) > 1:
            problem = (
                f"{source}: the file holds {len(named)} {kind}s; put each into a file of its own"
            )
        elif named:
            problem += f"; put the {kind} into a file of its own"
        else:
            problem += f", and none is a {kind}; name the file that holds the {kind}"
        raise InvalidSpec(problem)
    if not isinstance(documents[0], dict):
        there = "a list" if isinstance(documents[0], list) else "plain text"
        raise InvalidSpec(
            f"{source}: the file holds {there}; a mapping that begins with "
            f"apiVersion: {API_VERSION} is needed"
        )
    return _as_json(documents[0], source)


SEARCHES = frozenset({"space", "objective"})
"""Fields of a spec that only a TrainSweep has."""


def kinds_in(text: str) -> list[object]:
    """The `kind` of each document in `text`; empty where it is not YAML. A document with a search
    counts as a TrainSweep, whatever its `kind`: reading it as one then reports what is wrong."""
    try:
        documents = list(yaml.load_all(text, _Loader))
    except yaml.YAMLError:
        return []
    return [_meant(document) for document in documents if isinstance(document, dict)]


def _meant(document: dict[Any, Any]) -> object:
    spec = document.get("spec")
    searches = isinstance(spec, dict) and not SEARCHES.isdisjoint(spec)
    return "TrainSweep" if searches else document.get("kind")


def _place(source: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    return f"{source}, line {mark.line + 1}, column {mark.column + 1}" if mark else source


def _words(error: yaml.MarkedYAMLError) -> str:
    return " ".join(filter(None, (error.problem, error.context)))


def _as_json(document: dict[Any, Any], source: str) -> dict[str, Any]:
    """The document as the API server would get it: keys are strings, values are JSON in UTF-8."""
    try:
        text = json.dumps(document, ensure_ascii=False)
        text.encode()
        result: dict[str, Any] = json.loads(text)
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        near = error.object[max(error.start - 30, 0) : error.start]
        raise InvalidSpec(
            f"{source}: the file holds half a character ({half!a}) after {near!r}, which UTF-8 "
            "cannot encode"
        ) from error
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"{source}: the file holds a value that JSON cannot: {error}") from error
    return result


class InvalidFile(InvalidSpec):
    """A file without a valid resource; the message lists every problem, one per line."""

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

    `overrides` replaces values before the checks: `{"spec.workers.replicas": 2}`. A `status` is
    ignored, as by kubectl. Raises InvalidSpec; its subclass InvalidFile when fields are wrong.
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
    """The resource in a document that is already parsed; see `load_trainrun`.

    `stored`: it comes from the API server, which has removed misspelt fields. An unknown field then
    belongs to a newer version, whose CRD was installed before its operator, and is left out.
    """
    _check_kind(document, resource, source)
    document.pop("status", None)
    for path, value in (overrides or {}).items():
        _override(document, path, value)
    # The code below recurses: at some hundred levels each part of it would fail in its own way.
    if (deep := too_deep(document.get("spec"), ("spec",))) is not None:
        problem = f"{path_of(deep)}: is nested more than {DEEPEST} levels deep"
        raise InvalidFile(source=source, problems=(problem,))
    document = without_nulls(document, resource.model)
    if stored:
        document = without_unknown(document, resource.model)
    found = [] if stored else list(misspelt(document))
    try:
        made = _validate(document, resource.model)
        if not found:
            return made
    except ValidationError as error:
        found += _problems(document, resource.model, error)
    raise InvalidFile(source=source, problems=tuple(dict.fromkeys(found)))


def _check_kind(document: dict[str, Any], resource: Resource[Any], source: str) -> None:
    """Refuse a document of another kind at once: all later problems would be noise."""
    found = [
        f"{field} is {literal(document[field])}; {wanted} is needed here"
        if field in document
        else f"{field} is missing; add {field}: {wanted}"
        for field, wanted in resource.head().items()
        if document.get(field) != wanted
    ]
    if found:
        raise InvalidSpec(f"{source}: {', and '.join(found)}")


def _override(document: dict[str, Any], path: str, value: object) -> None:
    *parents, last = path.split(".")
    owner = document
    for key in parents:
        child = owner.get(key)
        if child is None:
            child = owner[key] = {}
        if not isinstance(child, dict):
            return  # not a mapping: the override has no place, and the check reports it
        owner = child
    owner[last] = value


def _validate(document: dict[str, Any], model: type[M]) -> M:
    # JSON mode: strict about types (no "4" for 4), but a list may become a tuple. Names only as in
    # the CRD: the API server would prune `max_failures`.
    return model.model_validate_json(
        json.dumps(document), strict=True, by_alias=True, by_name=False
    )


def _problems(document: dict[str, Any], model: type[Model], error: ValidationError) -> list[str]:
    """Every problem, including those that other problems hide.

    pydantic skips rules over several fields while one of the fields is wrong. So this removes the
    wrong values, which leaves the defaults, and checks the rest again, until no new problem
    appears.
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
    """Whether other problems caused this one: entries that failed, or values that we removed."""
    if detail["type"] == "too_short":
        return bool(detail["input"])
    if detail["type"] == BROKEN_RULE:  # broken by a default in place of a removed value
        return all((*detail["loc"], *rule.path) in removed for rule in detail["ctx"]["broken"])
    return detail["type"] == "missing" and detail["loc"] in removed


def _to_remove(detail: ErrorDetails) -> list[Place]:
    """What to remove so that the next check gets past this error; a list is removed as a whole."""
    places = [detail["loc"]]
    if detail["type"] == BROKEN_RULE:
        places = [(*detail["loc"], *broken.path) for broken in detail["ctx"]["broken"]]
    return [
        tuple(itertools.takewhile(lambda part: isinstance(part, str), place)) for place in places
    ]


def _remove(document: dict[str, Any], place: Place) -> bool:
    """Remove the value at `place`, if it is still there; the document itself stays."""
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
