"""Places in a document and what the models say about them.

Layer: api. Documents speak camelCase: a place is looked up by the names outside.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trainrun_operator.api.descriptions import descriptions

DEEPEST = 100
"""Levels of lists and mappings in each other: four times what a pod template can have."""
NAMED = 5
"""Parts of the place of something deeper that are told."""

Place = tuple[int | str, ...]
"""Where in a document: keys of mappings and indexes of lists."""


def without_nulls(value: Any, model: type[BaseModel] | None) -> Any:
    """`value` without the null fields that `model` knows, at any depth.

    The API server drops null where a field is not nullable, and none of ours is, before it fills in
    defaults. What the models do not know (in a pod template) keeps its nulls.
    """
    return _without(value, model, lambda _model, known, entry: known and entry is None)


def without_unknown(value: Any, model: type[BaseModel] | None) -> Any:
    """`value` without the fields that `model` would refuse for their names, at any depth."""
    return _without(value, model, lambda within, known, _entry: not known and _is_closed(within))


def _without(
    value: Any, model: type[BaseModel] | None, leaves: Callable[[type[BaseModel], bool, Any], bool]
) -> Any:
    """`value` without the fields that are to go; asked with the model around each, whether that
    knows the field, and what stands in it."""
    if model is None:
        return value
    if isinstance(value, list):
        return [_without(entry, model, leaves) for entry in value]
    if not isinstance(value, dict):
        return value
    fields = {str(info.alias): info for info in model.model_fields.values()}
    return {
        key: _without(entry, model_in(fields[key].annotation), leaves) if key in fields else entry
        for key, entry in value.items()
        if not leaves(model, key in fields, entry)
    }


def _is_closed(model: type[BaseModel]) -> bool:
    return model.model_config.get("extra") == "forbid"


def too_deep(value: Any, place: Place) -> Place | None:
    """Where `value`, which stands at `place`, has more than DEEPEST levels; None: nowhere. The
    place leads to the outer ones of them alone."""
    around = [(place, value)] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        around = [
            (where if len(where) >= NAMED else (*where, key), inner)
            for where, owner in around
            for key, inner in _entries(owner)
            if isinstance(inner, dict | list)
        ]
    return around[0][0] if around else None


def _entries(owner: dict[str, Any] | list[Any]) -> Iterable[tuple[int | str, Any]]:
    return owner.items() if isinstance(owner, dict) else enumerate(owner)


def field_at(model: type[BaseModel], place: Place) -> FieldInfo | None:
    """The field that stands at `place`, which is not the document itself; None where none does."""
    owner = model_at(model, place[:-1])
    if owner is None:
        return None
    return next((info for info in owner.model_fields.values() if info.alias == place[-1]), None)


def description_at(model: type[BaseModel], place: Place) -> str:
    """What stands below the field at `place`; "" for no field, or nothing."""
    owner = model_at(model, place[:-1])
    if owner is None:
        return ""
    names = (name for name, info in owner.model_fields.items() if info.alias == place[-1])
    return descriptions(owner).get(next(names, ""), "")


def model_at(model: type[BaseModel], place: Place) -> type[BaseModel] | None:
    """The model that reads the mapping at `place`."""
    found: type[BaseModel] | None = model
    for part in place:
        if isinstance(part, int):
            continue  # an index: the field before it already led to the model of the entries
        info = field_at(found, (part,)) if found else None
        found = model_in(info.annotation) if info else None
    return found


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The one model inside a type such as `tuple[Container, ...]` or `Backoff | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (model_in(argument) for argument in typing.get_args(annotation))
    return next((model for model in inner if model), None)
