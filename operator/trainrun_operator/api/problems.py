"""Places in a document, and messages for the user about what is wrong there.

Layer: api. Documents use camelCase: a place is looked up by the names outside. Each message has
the path, the value and what is allowed:
`spec.failurePolicy.maxFailures: -2 is less than -1; use -1 for no limit`.
"""

from __future__ import annotations

import difflib
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from trainrun_operator.api.base import BROKEN_RULE, BrokenRule, Hint, descriptions
from trainrun_operator.api.duration import Duration

DEEPEST = 100
"""Levels of nested lists and mappings: four times what a pod template can have."""
NAMED = 5
"""Parts of a deep place that a message shows."""
_MAX_VALUE = 80
_NEEDED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_TYPES: dict[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a mapping",
}

_SHAPES = ("model_type", "tuple_type")
"""Types of errors whose message gets the field's hint."""

Place = tuple[int | str, ...]
"""Where in a document: keys of mappings and indexes of lists."""


def without_nulls(value: Any, model: type[BaseModel] | None) -> Any:
    """`value` without the null fields that `model` knows, at any depth.

    Before it fills in defaults, the API server drops null where a field is not nullable, and none
    of ours is. Fields that the models do not know (in a pod template) keep their nulls.
    """
    return _without(value, model, lambda _model, known, entry: known and entry is None)


def without_unknown(value: Any, model: type[BaseModel] | None) -> Any:
    """`value` without the fields whose names `model` would refuse, at any depth."""
    return _without(
        value,
        model,
        lambda within, known, _: not known and within.model_config["extra"] == "forbid",
    )


def _without(
    value: Any, model: type[BaseModel] | None, leaves: Callable[[type[BaseModel], bool, Any], bool]
) -> Any:
    """`value` without the fields for which `leaves` is true. It gets the model around the field,
    whether that model knows the field, and the field's value."""
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


def too_deep(value: Any, place: Place) -> Place | None:
    """Where `value`, found at `place`, has more than DEEPEST levels; None: nowhere. The result
    names only the outer levels."""
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
    """The field at `place`, which is not the document itself; None where there is none."""
    owner = model_at(model, place[:-1])
    if owner is None:
        return None
    return next((info for info in owner.model_fields.values() if info.alias == place[-1]), None)


def description_at(model: type[BaseModel], place: Place) -> str:
    """The docstring of the field at `place`; "" where there is no field or no docstring."""
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
            continue  # an index: the field before it already gave the model of the entries
        info = field_at(found, (part,)) if found else None
        found = model_in(info.annotation) if info else None
    return found


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The one model inside a type such as `tuple[Container, ...]` or `Backoff | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = (model_in(argument) for argument in typing.get_args(annotation))
    return next((model for model in inner if model), None)


def sentences(error: ErrorDetails, model: type[BaseModel]) -> Iterator[str]:
    """The messages for one error that `model` raised; several when several rules are broken."""
    place, value = error["loc"], error["input"]
    if error["type"] == BROKEN_RULE:
        for broken in typing.cast("tuple[BrokenRule, ...]", error["ctx"]["broken"]):
            yield _broken_rule(place, value, broken)
    elif not place:
        yield f"the text cannot be read: {error['msg']}"
    else:
        yield f"{path(place)}: {_what(error, model)}"


def path(place: Sequence[int | str]) -> str:
    """`("spec", "containers", 0)` as `spec.containers[0]`."""
    text = ""
    for part in place:
        plain = isinstance(part, str) and part.replace("_", "").isalnum()
        text += f".{part}" if plain else f"[{part}]"
    return text.removeprefix(".")


def literal(value: object) -> str:
    """A value as JSON, cut when it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 3] + "..."


def _broken_rule(place: Place, value: object, broken: BrokenRule) -> str:
    for key in broken.path:
        value = _part(value, key)
    where = path((*place, *broken.path))
    if value is None or isinstance(value, dict | list):
        return f"{where}: {broken.message}"
    return f"{where}: {literal(value)} is not allowed: it {broken.message}"


def _part(value: object, key: int | str) -> object:
    match value, key:
        case dict(), _:
            return value.get(key)
        case list(), int() if key < len(value):
            return value[key]
        case _:
            return None


def _what(error: ErrorDetails, model: type[BaseModel]) -> str:
    """The part of the message after the path."""
    value, context = error["input"], error.get("ctx", {})
    match error["type"]:
        case "missing":
            return _missing(error["loc"], model)
        case "extra_forbidden":
            return _unknown_field(error["loc"], model)
        case "greater_than_equal":
            bound = f"{literal(value)} is less than {_number(context['ge'])}"
            return bound + _hint(error["loc"], model)
        case "less_than_equal":
            bound = f"{literal(value)} is greater than {_number(context['le'])}"
            return bound + _hint(error["loc"], model)
        case "literal_error" | "enum":
            return f"{literal(value)} is not known; it must be {context['expected']}"
        case "string_too_long":
            return f"{literal(value)} is longer than {context['max_length']} characters"
        case "string_too_short":
            return "is empty"
        case "too_long":
            return f"has {context['actual_length']} entries; {context['max_length']} are allowed"
        case "too_short":
            return f"is empty; at least {context['min_length']} entry is needed"
        case kind if kind in _NEEDED:
            found = _TYPES.get(type(value), "nothing")
            needed = f"{literal(value)} is {found}; {_NEEDED[kind]} is needed"
            if kind == "string_type":
                return needed + _unit(value, error["loc"], model)
            return needed + (_hint(error["loc"], model) if kind in _SHAPES else "")
        case "finite_number":
            return f"{literal(value)} is not allowed: it must be a finite number"
        case _:
            # No field of ours raises other errors today; pydantic's text is better than nothing.
            return f"{literal(value)}: {error['msg']}"


def _missing(place: Place, model: type[BaseModel]) -> str:
    about = description_at(model, place) or "a value is needed"
    return f"is missing: {' '.join(about.split())}"


def _unknown_field(place: Place, model: type[BaseModel]) -> str:
    owner = model_at(model, place[:-1])
    known = sorted(str(info.alias) for info in owner.model_fields.values()) if owner else []
    name = str(place[-1])
    folded = name.replace("_", "").lower()
    close = [candidate for candidate in known if candidate.lower() == folded]
    close = close or difflib.get_close_matches(name, known, n=1)
    if close:
        return f"unknown field; did you mean {close[0]}?"
    return f"unknown field; known here: {', '.join(known)}"


def _hint(place: Place, model: type[BaseModel]) -> str:
    info = field_at(model, place)
    hints = [entry.text for entry in (info.metadata if info else []) if isinstance(entry, Hint)]
    return "".join(f"; {text}" for text in hints)


def _unit(value: object, place: Place, model: type[BaseModel]) -> str:
    """What to write in place of a duration given as a bare number."""
    info = field_at(model, place)
    lasts = info is not None and _holds(info.annotation, Duration)
    return f"; write {value}s for seconds" if lasts and type(value) is int else ""


def _holds(annotation: object, wanted: type) -> bool:
    return annotation is wanted or any(_holds(part, wanted) for part in typing.get_args(annotation))


def _number(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
