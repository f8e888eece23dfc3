"""Reading the one YAML document of a file, as kubectl would, with errors that say where.

Layer: api. Differences to yaml.safe_load, all towards what the API server gets: a key that stands
twice is an error, dates stay strings, and what JSON cannot hold is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from typing import Any

import yaml

from trainrun.errors import InvalidSpec
from trainrun_operator.api.base import API_VERSION
from trainrun_operator.api.places import DEEPEST

MOST_VALUES = 100_000
"""Keys and values of a document; an object of a cluster has no room for as many."""

_EXPONENT = re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
"""Numbers that PyYAML alone would take for strings."""


class _Loader(yaml.SafeLoader):
    """SafeLoader without timestamps, with unique keys, and not for aliases that fill the memory."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the attribute's name and type are PyYAML's
        first: [entry for entry in entries if entry[0] != "tag:yaml.org,2002:timestamp"]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As in SafeLoader, but not without end: Python's own limit differs from place to place."""
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
        """As in SafeLoader, but a document whose aliases make it huge is refused beforehand."""
        values, levels = _extent(node, {})
        if values > MOST_VALUES:
            raise _refused(f"the document has more than {MOST_VALUES} values", node)
        if levels > DEEPEST:
            raise _refused(
                f"the document's values are nested more than {DEEPEST} levels deep", node
            )
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """As in SafeLoader, but the same key twice is an error at its second place."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            # A merge key (`<<`) may be overridden: that is what it is for.
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                break  # SafeLoader says so with its own words
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands here twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


# PyYAML follows YAML 1.1, where 1e-5 without a dot is a string; to kubectl it is a number.
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def _refused(why: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(
        None, None, f"with its aliases written out {why}", node.start_mark
    )


def _extent(node: yaml.Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How many values and levels the node has with aliases written out; `known`: of other nodes.

    It calls itself no deeper than the text is nested: what an alias names stands before it.
    """
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = (1, 1)  # one that holds itself is refused elsewhere
    if isinstance(node, yaml.MappingNode):
        inner = [part for pair in node.value for part in pair]
    else:
        inner = node.value if isinstance(node, yaml.SequenceNode) else []
    parts = [_extent(part, known) for part in inner]
    values = 1 + sum(values for values, _ in parts)
    levels = 1 + max((levels for _, levels in parts), default=0)
    known[id(node)] = (values, levels)
    return known[id(node)]


def read_document(text: str, *, source: str, kind: str) -> dict[str, Any]:
    """The mapping that `text` holds; errors name `source`, and `kind`, which was looked for.

    Raises InvalidSpec when it is not YAML, holds no or several documents, or no mapping.
    """
    try:
        documents = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        raise InvalidSpec(f"{_place(source, error)}: not valid YAML: {_words(error)}") from error
    except yaml.YAMLError as error:
        raise InvalidSpec(f"{source}: not valid YAML: {error}") from error
    if not documents:
        raise InvalidSpec(f"{source}: the file is empty; a {kind} is needed")
    if len(documents) > 1:
        raise InvalidSpec(
            f"{source}: the file holds {len(documents)} YAML documents; put the {kind} into a "
            "file of its own"
        )
    if not isinstance(documents[0], dict):
        raise InvalidSpec(
            f"{source}: the file holds {_kind(documents[0])}; a mapping that begins with "
            f"apiVersion: {API_VERSION} is needed"
        )
    return _as_json(documents[0], source)


SEARCHES = frozenset({"space", "objective"})
"""Fields of a spec that a TrainSweep alone has."""


def kinds_in(text: str) -> list[object]:
    """The `kind` of each document in `text`; empty where it is not YAML. One that searches is a
    TrainSweep, whatever it calls itself: whoever reads it as such says what is wrong."""
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
    parts = [part for part in (error.problem, error.context) if part]
    return " ".join(parts)


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else "plain text"


def _as_json(document: dict[Any, Any], source: str) -> dict[str, Any]:
    """What the API server would get: keys are strings, values are JSON in UTF-8."""
    try:
        text = json.dumps(document, ensure_ascii=False)
        text.encode()
        result: dict[str, Any] = json.loads(text)
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        near = error.object[max(error.start - 30, 0) : error.start]
        raise InvalidSpec(
            f"{source}: the file holds half a character ({half!a}) after {near!r}: no UTF-8 has it"
        ) from error
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"{source}: the file holds what JSON cannot: {error}") from error
    return result
