"""Reading the one YAML document of a file, as kubectl would, with errors that say where.

Layer: api. Differences to yaml.safe_load, all towards what the API server gets: a key that stands
twice is an error, dates stay strings, and what JSON cannot hold is refused.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import yaml

from trainrun.errors import InvalidSpec


class _Loader(yaml.SafeLoader):
    """SafeLoader without timestamps, and with unique keys."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the attribute's name and type are PyYAML's
        first: [entry for entry in entries if entry[0] != "tag:yaml.org,2002:timestamp"]
        for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

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


def read_document(text: str, *, source: str) -> dict[str, Any]:
    """The mapping that `text` holds; `source` names it in errors.

    Raises InvalidSpec when it is not YAML, holds no or several documents, or no mapping.
    """
    try:
        documents = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        raise InvalidSpec(f"{_place(source, error)}: not valid YAML: {_words(error)}") from error
    except yaml.YAMLError as error:
        raise InvalidSpec(f"{source}: not valid YAML: {error}") from error
    if not documents:
        raise InvalidSpec(f"{source}: the file is empty; a TrainRun is needed")
    if len(documents) > 1:
        raise InvalidSpec(
            f"{source}: the file holds {len(documents)} YAML documents; put the TrainRun into a "
            "file of its own"
        )
    if not isinstance(documents[0], dict):
        raise InvalidSpec(
            f"{source}: the file holds {_kind(documents[0])}; a mapping that begins with "
            "apiVersion: trainrun.dev/v1alpha1 is needed"
        )
    return _as_json(documents[0], source)


def _place(source: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    return f"{source}, line {mark.line + 1}, column {mark.column + 1}" if mark else source


def _words(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.problem, error.context) if part]
    return " ".join(parts)


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else "plain text"


def _as_json(document: dict[Any, Any], source: str) -> dict[str, Any]:
    """What the API server would get: keys are strings, values are JSON."""
    try:
        result: dict[str, Any] = json.loads(json.dumps(document))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSpec(f"{source}: the file holds what JSON cannot: {error}") from error
    return result
