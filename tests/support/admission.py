"""What the API server does with a custom resource, as far as a CRD decides it.

Drops nulls, fills in defaults, refuses unknown fields (as kubectl asks it to), checks the
structural schema with jsonschema and the CEL rules with an independent CEL interpreter. It
follows the server's documentation and shares no code with the models; a real API server is the
judge of both.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import cel
from jsonschema import Draft202012Validator

Schema = dict[str, Any]

CEL_RULES = "x-kubernetes-validations"
OPEN = "x-kubernetes-preserve-unknown-fields"


def refusals(crd: Schema, new: dict[str, Any], old: dict[str, Any] | None = None) -> set[str]:
    """Paths of what the API server would refuse when `new` is created, or replaces `old`."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    admitted = with_defaults(schema, without_nulls(schema, copy.deepcopy(new)))
    stored = with_defaults(schema, copy.deepcopy(old)) if old else None
    found = set(_structural(schema, admitted)) | set(_unknown(schema, admitted, ""))
    found |= set(_repeated(schema, admitted, ""))
    # As the server does: no rules over values whose types are wrong.
    return found or set(_rules(schema, admitted, stored, ""))


def without_nulls(schema: Schema, value: Any) -> Any:
    """`value` without the nulls of known fields, none of which is nullable."""
    if isinstance(value, list):
        return [without_nulls(schema.get("items", {}), entry) for entry in value]
    if not isinstance(value, dict):
        return value
    known = schema.get("properties", {})
    return {
        name: without_nulls(known.get(name, {}), entry)
        for name, entry in value.items()
        if entry is not None or name not in known
    }


def with_defaults(schema: Schema, value: Any) -> Any:
    """`value` with the defaults of the schema, outer ones first."""
    if isinstance(value, list):
        return [with_defaults(schema.get("items", {}), entry) for entry in value]
    if not isinstance(value, dict):
        return value
    for name, inner in schema.get("properties", {}).items():
        if name not in value and "default" in inner:
            value[name] = copy.deepcopy(inner["default"])
        if name in value:
            value[name] = with_defaults(inner, value[name])
    return value


def _structural(schema: Schema, value: Any) -> Iterator[str]:
    for error in Draft202012Validator(schema).iter_errors(value):
        where = _path(error.absolute_path)
        if error.validator == "required":
            missing = set(error.validator_value) - error.instance.keys()
            yield from (f"{where}.{name}".removeprefix(".") for name in missing)
        else:
            yield where


def _path(parts: Any) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts).removeprefix(".")


def _unknown(schema: Schema, value: Any, path: str) -> Iterator[str]:
    for inner, entry, where in _children(schema, value, path):
        if inner is not None:
            yield from _unknown(inner, entry, where)
        elif not schema.get(OPEN) and path not in ("", "metadata"):
            yield where


def _repeated(schema: Schema, value: Any, path: str) -> Iterator[str]:
    """Entries of a list of type map whose keys an earlier entry has."""
    if schema.get("x-kubernetes-list-type") == "map" and isinstance(value, list):
        names = schema["x-kubernetes-list-map-keys"]
        keys = [[entry.get(name) for name in names] for entry in value]
        yield from (f"{path}[{at}]" for at, key in enumerate(keys) if key in keys[:at])
    for inner, entry, where in _children(schema, value, path):
        yield from _repeated(inner or {}, entry, where)


def _rules(schema: Schema, value: Any, old: Any, path: str) -> Iterator[str]:
    for rule in schema.get(CEL_RULES, []):
        if "optionalOldSelf" in rule or ("oldSelf" in rule["rule"] and old is None):
            continue  # the interpreter knows no optional values: tests/api/test_on_a_server.py
        if not _holds(rule["rule"], value, old):
            # The rule over metadata.name stands at the root, where no field path is allowed.
            where = path + rule.get("fieldPath", "") if path else ".metadata.name"
            yield where.removeprefix(".")
    before = {where: entry for _, entry, where in _children(schema, old, path)}
    for inner, entry, where in _children(schema, value, path):
        yield from _rules(inner or {}, entry, before.get(where), where)


def _holds(rule: str, value: Any, old: Any) -> bool:
    """A rule that cannot be evaluated refuses, as a pattern that is none."""
    known = cel.Context({"self": value, "oldSelf": old})
    known.add_function("sum", sum)  # one of the API server's own
    try:
        return cel.evaluate(rule, known) is True
    except RuntimeError:
        return False


def _children(schema: Schema, value: Any, path: str) -> Iterator[tuple[Schema | None, Any, str]]:
    """The parts of a value with their schemas; None where the schema knows nothing of the part."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield schema.get("items"), entry, f"{path}[{index}]"
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        for name, entry in value.items():
            yield known.get(name, rest), entry, f"{path}.{name}".removeprefix(".")
