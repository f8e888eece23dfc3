"""The CustomResourceDefinition, made from the models.

Layer: api; run as a program it is what `make crds` calls, and the one place here that writes files.
pydantic speaks JSON Schema 2020-12, the API server a structural subset of OpenAPI v3: references,
null types and `additionalProperties: false` are unknown to it, and an open object is marked in
another way.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from trainrun_operator.api.base import CEL_RULES
from trainrun_operator.api.resource import API_VERSION, GROUP, KIND, PLURAL, VERSION
from trainrun_operator.api.spec import MAX_NAME, TrainRunSpec
from trainrun_operator.api.status import TrainRunStatus

FILE_NAME = f"{GROUP}_{PLURAL}.yaml"
"""Name of the file below crds/."""

_HEADER = "# Made from the models in operator/trainrun_operator/api by `make crds`. Do not edit.\n"

_KEPT = (
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
)
"""Keywords that mean the same on both sides. Any other is translated, dropped as noise, or an
error: what the API server would silently ignore must not look like a rule."""

_TRANSLATED = {"$ref", "$defs", "anyOf", "const", "properties", "items", "additionalProperties"}
_NOISE = {"title", CEL_RULES}


class NotStructural(Exception):
    """A model holds something that no structural schema can say; names the place."""


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition as an object."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["tr"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _object_schema()},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": _columns(),
                }
            ],
        },
    }


def crd_yaml() -> str:
    """The text of the file below crds/."""
    return _HEADER + yaml.safe_dump(crd(), sort_keys=False, width=100, allow_unicode=True)


def structural(model: type[BaseModel], *, defaults: bool) -> dict[str, Any]:
    """The structural schema of a model; raises NotStructural where there is none.

    Without `defaults` for a status: what nobody has written must not look written.
    """
    schema = model.model_json_schema(by_alias=True)
    return _Translation(definitions=schema.get("$defs", {}), defaults=defaults).of(schema, ())


def _object_schema() -> dict[str, Any]:
    name_rule = {
        "rule": (
            f"size(self.metadata.name) <= {MAX_NAME} && "
            "self.metadata.name.matches(r'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')"
        ),
        "message": (
            f"metadata.name must be at most {MAX_NAME} lower case letters, digits and dashes, and "
            "begin and end with a letter or digit"
        ),
    }
    return {
        "description": "A long training run that survives failures and preemptions.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{API_VERSION}."},
            "kind": {"type": "string", "description": f"{KIND}."},
            "metadata": {"type": "object"},
            "spec": structural(TrainRunSpec, defaults=True),
            "status": structural(TrainRunStatus, defaults=False),
        },
        CEL_RULES: [name_rule],
    }


def _columns() -> list[dict[str, Any]]:
    """What `kubectl get` shows; the last ones only with `-o wide`."""
    rows = [
        ("Phase", "string", ".status.phase"),
        ("Workers", "string", ".status.workers.text"),
        ("Step", "integer", ".status.progress.step"),
        ("Failures", "string", ".status.failures.text"),
        ("Restarts", "integer", ".status.restarts"),
        ("Checkpoint", "integer", ".status.checkpoint.step"),
        ("Saved", "date", ".status.checkpoint.time"),
        ("Reason", "string", ".status.reason"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ]
    wide = [
        ("Attempt", "integer", ".status.attempt"),
        ("Last cause", "string", ".status.incidents[-1:].cause"),
        ("Last node", "string", ".status.incidents[-1:].node"),
    ]
    shown = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in rows]
    return shown + [
        {"name": name, "type": kind, "jsonPath": path, "priority": 1} for name, kind, path in wide
    ]


class _Translation:
    """Translates one model's schema; recursion ends because models do not hold themselves."""

    def __init__(self, *, definitions: dict[str, Any], defaults: bool) -> None:
        self._definitions = definitions
        self._defaults = defaults

    def of(self, schema: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
        """The structural form of `schema`, which stands at `place`."""
        schema = self._resolved(schema, place)
        unknown = schema.keys() - set(_KEPT) - _TRANSLATED - _NOISE
        if unknown:
            raise NotStructural(f"{'.'.join(place)}: the API server does not know {unknown}")
        out = {key: schema[key] for key in _KEPT if key in schema}
        if "description" in out:
            out["description"] = " ".join(out["description"].split())
        if "const" in schema:
            # The API server ignores `const` without a word.
            out["enum"] = [schema["const"]]
        inside = self._inside(schema)
        if "properties" in schema:
            out["properties"] = {
                name: inside.of(inner, (*place, name))
                for name, inner in schema["properties"].items()
            }
        if "items" in schema:
            out["items"] = inside.of(schema["items"], (*place, "[]"))
        self._translate_default(out)
        self._translate_open(schema, out, place)
        if CEL_RULES in schema:
            out[CEL_RULES] = schema[CEL_RULES]
        return out

    def _resolved(self, schema: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
        """`schema` with its reference followed and its null taken away."""
        if "anyOf" in schema:
            options = [option for option in schema["anyOf"] if option != {"type": "null"}]
            if len(options) != 1:
                raise NotStructural(f"{'.'.join(place)}: more than one type")
            schema = {**options[0], **{k: v for k, v in schema.items() if k != "anyOf"}}
        if "$ref" in schema:
            target = self._definitions[schema["$ref"].rpartition("/")[2]]
            # What stands at the field (its docstring) says more than what stands at the class.
            return {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
        return schema

    def _inside(self, schema: dict[str, Any]) -> _Translation:
        """For what stands inside `schema`: an open object is the user's, no defaults are added."""
        if schema.get("additionalProperties") is True:
            return _Translation(definitions=self._definitions, defaults=False)
        return self

    def _translate_default(self, out: dict[str, Any]) -> None:
        if "default" not in out:
            return
        if not self._defaults or out["default"] in (None, "", [], ()):
            del out["default"]
        elif isinstance(out["default"], dict):
            # Written out, since the server checks the rules of an object against its default before
            # it has filled in the inner ones.
            inner = out["properties"].items()
            out["default"] = {name: node["default"] for name, node in inner if "default" in node}

    def _translate_open(
        self, schema: dict[str, Any], out: dict[str, Any], place: tuple[str, ...]
    ) -> None:
        """Objects that are open, or maps: `false` goes, since unknown fields are pruned anyway."""
        match schema.get("additionalProperties"):
            case True:
                out["x-kubernetes-preserve-unknown-fields"] = True
            case dict() as inner:
                out["additionalProperties"] = self.of(inner, (*place, "*"))
            case _:
                pass


def main(folder: str) -> None:
    """Write the file below `folder`."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / FILE_NAME).write_text(crd_yaml(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
