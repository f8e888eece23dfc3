"""Every field of a resource, from the schema that the API server checks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tools.reference.markdown import code, document, table
from trainrun_operator.api.base import CEL_RULES
from trainrun_operator.api.crd import crd
from trainrun_operator.api.resources import Resource

HEADS = ("Field", "Type", "Default", "Bounds", "Means")

Schema = dict[str, Any]


def page(row: Resource[Any]) -> str:
    """The page of a resource."""
    resource = crd(row)["spec"]
    version = resource["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    names = resource["names"]
    short = ", ".join(code(name) for name in names.get("shortNames", []))
    return document(
        f"{names['kind']}: spec and status",
        "the models in `operator/trainrun_operator/api`",
        f"`apiVersion: {resource['group']}/{version['name']}`, `kind: {names['kind']}`; "
        f"short name {short}. `kubectl explain {row.kind.lower()}.spec` shows the same.\n"
        "An absent field has its default; nothing is ever null. "
        "Durations are strings such as `90s`, `5m` or `1h30m`.",
        *_sections("spec", schema["properties"]["spec"], {}),
        *_sections("status", schema["properties"]["status"], {}),
    )


def _sections(path: str, node: Schema, seen: dict[str, str]) -> Iterator[str]:
    """One section per object; an object that stands in two places has one section only."""
    fields = node.get("properties", {})
    for name, inner in fields.items():
        if (below := _object(inner)) is not None:
            seen.setdefault(_essence(below), _path(path, name, inner))
    required = node.get("required", [])
    rows = [
        _row(name, inner, required=name in required, seen=seen) for name, inner in fields.items()
    ]
    rules = [f"- {_rule(rule)}." for rule in node.get(CEL_RULES, [])]
    yield "\n\n".join(
        part
        for part in (
            f"{'##' if '.' not in path else '###'} {code(path)}",
            node.get("description", ""),
            table(HEADS, rows),
            "\n".join(rules),
        )
        if part
    )
    for name, inner in fields.items():
        below, place = _object(inner), _path(path, name, inner)
        if below is not None and seen[_essence(below)] == place:
            yield from _sections(place, below, seen)


def _row(name: str, node: Schema, *, required: bool, seen: dict[str, str]) -> tuple[str, ...]:
    default = "required" if required else _default(node)
    return (code(name), _type(node, seen), default, _bounds(node), node.get("description", ""))


def _type(node: Schema, seen: dict[str, str]) -> str:
    below = _object(node)
    if below is not None:
        text = f"[object](#{seen[_essence(below)].replace('.', '').replace('[]', '').lower()})"
    else:
        text = _plain(node.get("items", node))
    return f"list of {text}" if node.get("type") == "array" else text


def _plain(node: Schema) -> str:
    if any("duration(self)" in rule["rule"] for rule in node.get(CEL_RULES, [])):
        return "duration"
    if "type" not in node:
        return "any scalar"
    return "time" if node.get("format") == "date-time" else str(node["type"])


def _default(node: Schema) -> str:
    default = node.get("default")
    return (
        "" if default is None or isinstance(default, dict) else code(json.dumps(default).strip('"'))
    )


def _bounds(node: Schema) -> str:
    found = [" or ".join(code(value) for value in node["enum"])] if "enum" in node else []
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None:
        found.append(f"{low} to {high}" if high is not None else f"at least {low}")
    for key, unit in (
        ("maxLength", "characters"),
        ("maxItems", "entries"),
        ("maxProperties", "entries"),
    ):
        if key in node and _plain(node) != "duration":
            found.append(f"at most {node[key]} {unit}")
    if "properties" not in node:
        found += [_rule(rule) for rule in node.get(CEL_RULES, [])]
    return "; ".join(found)


def _rule(rule: dict[str, str]) -> str:
    place = rule.get("fieldPath", "").lstrip(".")
    return f"{code(place)} {rule['message']}" if place else rule["message"]


def _object(node: Schema) -> Schema | None:
    """The object with fields that a field is, or is a list of."""
    inner = node.get("items", node)
    return inner if "properties" in inner else None


def _essence(node: Schema) -> str:
    """What makes two objects the same: their fields, wherever they stand."""
    return json.dumps(node["properties"], sort_keys=True)


def _path(path: str, name: str, node: Schema) -> str:
    return f"{path}.{name}{'[]' if node.get('type') == 'array' else ''}"
