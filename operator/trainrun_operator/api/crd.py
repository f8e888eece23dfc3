"""The CustomResourceDefinitions, made from the table of resources and their models.

Layer: api. `make crds` runs it as a program; it is the only module of this layer that writes files.
pydantic produces JSON Schema 2020-12; the API server takes a structural subset of OpenAPI v3, which
has no references, null types or `additionalProperties: false`, and marks open objects differently.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from trainrun_operator.api.base import (
    ANY_TYPE,
    API_VERSION,
    CEL_RULES,
    GROUP,
    INT_OR_STRING,
    LIST_MAP_KEYS,
    LIST_TYPE,
    VERSION,
)
from trainrun_operator.api.resources import TRAINRUN, Column, Resource
from trainrun_operator.api.sweep.spec import TRAINSWEEP

RESOURCES: tuple[Resource[Any], ...] = (TRAINRUN, TRAINSWEEP)
"""All custom resources."""

_HEADER = "# Made from the models in operator/trainrun_operator/api by `make crds`. Do not edit.\n"

_COPIED = (
    "description",
    "type",
    "format",
    "pattern",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    ANY_TYPE,
    INT_OR_STRING,
    LIST_TYPE,
    LIST_MAP_KEYS,
)
"""Keywords with the same meaning on both sides. All others are translated, dropped as noise, or an
error: a keyword that the API server silently ignores must not look like a rule."""

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1

_TRANSLATED = {
    "$ref",
    "$defs",
    "anyOf",
    "const",
    "exclusiveMinimum",
    "properties",
    "items",
    "additionalProperties",
}
_NOISE = {"title", CEL_RULES, "propertyNames"}
"""A CRD cannot express rules for the keys of a map, so the operator checks them (propertyNames)."""


class NotStructural(Exception):
    """A model holds something that a structural schema cannot express; names the place."""


class _WithoutAnchors(yaml.SafeDumper):
    """Writes repeated parts out in full, since people read the file."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def crd(resource: Resource[Any]) -> dict[str, Any]:
    """The CustomResourceDefinition of a resource as an object."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": list(resource.short_names),
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _object_schema(resource)},
                    "subresources": {"status": {}}
                    | ({"scale": resource.scale} if resource.scale else {}),
                    "additionalPrinterColumns": [_column(column) for column in resource.columns],
                }
            ],
        },
    }


def crd_yaml(resource: Resource[Any]) -> str:
    """The text of the resource's file in crds/."""
    text: str = yaml.dump(
        crd(resource), Dumper=_WithoutAnchors, sort_keys=False, width=100, allow_unicode=True
    )
    return _HEADER + text


def structural(model: type[object], *, status: bool = False) -> dict[str, Any]:
    """The structural schema of a model or dataclass; raises NotStructural where there is none.

    A `status` gets no defaults: a field that the operator never wrote must not look written. It
    gets no enums: an operator newer than the CRD must be able to write values that the CRD lacks.
    """
    schema = TypeAdapter(model).json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    return _Translation(definitions, defaults=not status, enums=not status).of(schema, ())


def _object_schema(resource: Resource[Any]) -> dict[str, Any]:
    name_rule = {
        "rule": (
            f"size(self.metadata.name) <= {resource.max_name} && "
            "self.metadata.name.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')"
        ),
        "message": (
            f"metadata.name must be at most {resource.max_name} lower case letters, digits and "
            "dashes, and begin and end with a letter or digit"
        ),
    }
    return {
        "description": resource.model.__doc__,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{API_VERSION}."},
            "kind": {"type": "string", "description": f"{resource.kind}."},
            "metadata": {"type": "object"},
            "spec": structural(resource.spec),
            # kstatus considers an object without a status healthy.
            "status": structural(resource.status, status=True)
            | {"default": {"observedGeneration": -1}},
        },
        CEL_RULES: [name_rule],
    }


def _column(column: Column) -> dict[str, Any]:
    entry = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**entry, "priority": 1} if column.wide else entry


class _Translation:
    """Translates one model's schema; the recursion ends because no model contains itself."""

    def __init__(self, definitions: dict[str, Any], *, defaults: bool, enums: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults
        self._enums = enums

    def of(self, schema: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
        """The structural form of `schema`, found at `place`."""
        schema = self._resolved(schema, place)
        unknown = schema.keys() - set(_COPIED) - _TRANSLATED - _NOISE
        if unknown:
            raise NotStructural(f"{'.'.join(place)}: the API server does not know {unknown}")
        out = {key: schema[key] for key in _COPIED if key in schema}
        if "description" in out:
            out["description"] = " ".join(out["description"].split())
        if "const" in schema:
            # The API server silently ignores `const`.
            out["enum"] = [schema["const"]]
        if "exclusiveMinimum" in schema:
            # A flag in OpenAPI 3.0, a number in JSON Schema.
            out |= {"minimum": schema["exclusiveMinimum"], "exclusiveMinimum": True}
        if not self._enums:
            out.pop("enum", None)
        if out.get("type") == "integer":
            out["format"] = "int32" if out.get("maximum", _MAX_INT64) <= _MAX_INT32 else "int64"
        inside = self._inside(schema)
        if "properties" in schema:
            out["properties"] = {
                name: inside.of(inner, (*place, name))
                for name, inner in schema["properties"].items()
            }
        if "items" in schema:
            out["items"] = inside.of(schema["items"], (*place, "[]"))
        self._translate_default(out)
        # `false` is dropped, since unknown fields are pruned anyway.
        additional = schema.get("additionalProperties")
        if additional is True:
            out[ANY_TYPE] = True
        elif isinstance(additional, dict):
            out["additionalProperties"] = self.of(additional, (*place, "*"))
        if CEL_RULES in schema:
            out[CEL_RULES] = schema[CEL_RULES]
        return out

    def _resolved(self, schema: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
        """`schema` with its reference resolved and null removed."""
        if "anyOf" in schema:
            options = [option for option in schema["anyOf"] if option != {"type": "null"}]
            if len(options) != 1:
                raise NotStructural(f"{'.'.join(place)}: more than one type")
            schema = {**options[0], **{k: v for k, v in schema.items() if k != "anyOf"}}
        if "$ref" in schema:
            target = self._definitions[schema["$ref"].rpartition("/")[2]]
            if "enum" in target:
                target = {key: target[key] for key in ("type", "enum")}
            # The field's docstring says more than the class's.
            return {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
        return schema

    def _inside(self, schema: dict[str, Any]) -> _Translation:
        """The translation for the inside of `schema`: an open object is the user's, so no defaults
        are added there."""
        if schema.get("additionalProperties") is True:
            return _Translation(self._definitions, defaults=False, enums=self._enums)
        return self

    def _translate_default(self, out: dict[str, Any]) -> None:
        if "default" not in out:
            return
        if not self._defaults or out["default"] in (None, "", [], ()):
            del out["default"]
        elif isinstance(out["default"], dict):
            # Written out, since the server checks an object's rules against its default before it
            # fills in the inner defaults.
            inner = out["properties"].items()
            out["default"] = {name: node["default"] for name, node in inner if "default" in node}


def main(folder: str) -> None:
    """Write one file per resource into `folder`."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for resource in RESOURCES:
        path = Path(folder) / resource.file_name
        path.write_text(crd_yaml(resource), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
