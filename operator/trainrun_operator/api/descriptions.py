"""What stands below the fields of models and dataclasses, for schemas and for messages.

Layer: api. Read when somebody asks: pydantic would read it of every model in every process that
starts, from the sources, which takes a seventh of the start of `trainrun run`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue


def descriptions(cls: type[Any]) -> dict[str, str]:
    """By field, those of the bases included; of those without one, nothing."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if "__annotations__" in vars(base):
            found |= _below_fields(base)
    return found


@cache
def _below_fields(cls: type[Any]) -> dict[str, str]:
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except OSError:  # installed without sources
        return {}
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def describe(
    cls: type[Any],
    names: Mapping[str, str],
    schema: JsonSchemaValue,
    handler: GetJsonSchemaHandler,
) -> JsonSchemaValue:
    """Write them into the schema that was made of `cls`; `names` are the fields' names outside."""
    properties, told = handler.resolve_ref_schema(schema)["properties"], descriptions(cls)
    for name, outside in names.items():
        if name in told:
            properties[outside].setdefault("description", told[name])
    return schema
