"""What all models of the resources share: one base class, and rules that hold in Python and in CEL.

Layer: api. Invariants:

- models are immutable and refuse unknown fields; names are camelCase outside, snake_case inside;
- optional means absent: no field of a resource is ever null outside;
- each rule is written once, as a CEL expression for the API server and a function for us, with
  one message. tests/api/spec_table/ compares the two.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

GROUP = "trainrun.dev"
VERSION = "v1alpha1"
API_VERSION: Literal["trainrun.dev/v1alpha1"] = "trainrun.dev/v1alpha1"
"""The same for all resources."""

RECONCILING, STALLED = "Reconciling", "Stalled"
"""Conditions of kstatus, which show tools that do not know our resources how an object is doing: at
most one of them is present, and it is True."""

CEL_RULES = "x-kubernetes-validations"
"""The schema key under which the API server looks for CEL rules."""

ANY_TYPE = "x-kubernetes-preserve-unknown-fields"
"""The schema key of a field that may hold anything; CEL rules cannot look into it."""

INT_OR_STRING = "x-kubernetes-int-or-string"
"""The schema key of a quantity: a number or a string."""

LIST_TYPE = "x-kubernetes-list-type"
LIST_MAP_KEYS = "x-kubernetes-list-map-keys"
"""The schema keys that say how server-side apply merges a list."""

BROKEN_RULE = "broken_rule"
"""Type of the pydantic error for broken rules; its context holds them as `broken`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """One rule that a value breaks, as it travels in the context of a pydantic error."""

    path: tuple[int | str, ...]
    """Where in the value the problem is: () for the value itself, ("max",) for its field."""
    message: str
    """What is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition that a value must meet: use it in Annotated[], or in a model's RULES.

    `holds` gets values from pydantic, `cel` sees JSON.
    """

    cel: str
    """CEL expression over `self` that must be true."""
    message: str
    """What is allowed, starting with "must" or similar: it is shown after the value."""
    holds: Callable[[Any], bool]
    """The same as `cel`."""
    path: tuple[str, ...] = ()
    """The field that breaks the rule, relative to the value, in camelCase names."""

    def as_cel(self) -> dict[str, str]:
        """The entry for x-kubernetes-validations."""
        return cel_entry(self.cel, self.message, self.path)

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check the rule after the type."""

        def check(value: object) -> object:
            _refuse_broken((self,), value)
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Write the rule into the schema."""
        return _with_rules(handler(schema), [self.as_cel()])


@dataclass(frozen=True, slots=True)
class Hint:
    """Advice on a field, added to the message when a bound is broken or a mapping is needed."""

    text: str
    """Starts with a verb: `use -1 for no limit`."""


@dataclass(frozen=True, slots=True)
class MapList:
    """A list whose entries the API server identifies by their field `key`; use it in Annotated[].

    With server-side apply each manager owns its own entries. The API server refuses a list that
    holds the same key twice.
    """

    key: str
    """camelCase name of a required string field of the entries."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Write the key into the schema."""
        return {**handler(schema), LIST_TYPE: "map", LIST_MAP_KEYS: [self.key]}


@dataclass(frozen=True, slots=True)
class EachOnce(MapList):
    """A MapList that a user writes: each key may occur only once."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check the keys after the entries."""

        def check(entries: tuple[Any, ...]) -> tuple[Any, ...]:
            keys = [getattr(entry, self.key) for entry in entries]
            refuse(
                ((at,), f"has the {self.key} {key} of another entry")
                for at, key in enumerate(keys)
                if key in keys[:at]
            )
            return entries

        return core_schema.no_info_after_validator_function(check, handler(source))


def matches(pattern: str, message: str) -> Rule:
    """The rule that a string matches a regular expression; Python and RE2 must read it alike."""
    expression = re.compile(pattern)
    return Rule(
        cel=f"self.matches(r'{pattern}')",
        message=message,
        # Python's `$` also matches before a trailing newline; RE2's does not.
        holds=lambda value: expression.match(value) is not None and not value.endswith("\n"),
    )


def unchangeable(path: str, why: str) -> dict[str, str]:
    """The CEL entry that forbids changes of the field at `path` (camelCase names).

    It uses has() on both sides, since a rule on the field itself is skipped when the field is added
    or removed.
    """
    new, old = f"self.{path}", f"oldSelf.{path}"
    return cel_entry(
        f"has({new}) == has({old}) && (!has({new}) || {new} == {old})",
        f"cannot be changed: {why}",
        tuple(path.split(".")),
    )


def cel_entry(cel: str, message: str, path: tuple[str, ...]) -> dict[str, str]:
    """An entry of x-kubernetes-validations; `fieldPath` only if it adds to the entry's place."""
    entry = {"rule": cel, "message": message}
    if path:
        entry["fieldPath"] = "".join(f".{name}" for name in path)
    return entry


def refuse(problems: Iterable[tuple[tuple[int | str, ...], str]]) -> None:
    """Raise one pydantic error, a ValueError, for all problems (path below the value, what is
    allowed), if there are any; each problem becomes one sentence."""
    broken = tuple(BrokenRule(path=path, message=message) for path, message in problems)
    if broken:
        text = "; ".join(rule.message for rule in broken)
        raise PydanticCustomError(BROKEN_RULE, "{text}", {"text": text, "broken": broken})


def _refuse_broken(rules: tuple[Rule, ...], value: object) -> None:
    refuse((rule.path, rule.message) for rule in rules if not rule.holds(value))


class Model(BaseModel):
    """Base of all models of the resources."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()
    """Rules over several fields."""
    CHANGES: ClassVar[tuple[dict[str, Any], ...]] = ()
    """CEL entries over `self` and `oldSelf`: changes of the object that are forbidden."""

    @model_validator(mode="after")
    def _keep_the_rules(self) -> Self:
        _refuse_broken(self.RULES, self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Write the fields' docstrings and the rules into the schema of the model."""
        names = {name: str(info.alias) for name, info in cls.model_fields.items()}
        written = describe(cls, names, handler(schema), handler)
        entries = [*(rule.as_cel() for rule in cls.RULES), *cls.CHANGES]
        return _with_rules(handler.resolve_ref_schema(written), entries) if entries else written

    def to_json_object(self) -> dict[str, Any]:
        """The object as in the custom resource: camelCase, JSON types, absent instead of null."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _with_rules(schema: JsonSchemaValue, entries: list[dict[str, Any]]) -> JsonSchemaValue:
    schema[CEL_RULES] = [*schema.get(CEL_RULES, []), *entries]
    return schema


def descriptions(cls: type[Any]) -> dict[str, str]:
    """Docstrings by field, those of base classes included; fields without one are left out."""
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
    """Write the descriptions into the schema of `cls`; `names`: by field, the name outside."""
    properties, texts = handler.resolve_ref_schema(schema)["properties"], descriptions(cls)
    for name, outside in names.items():
        if name in texts:
            properties[outside].setdefault("description", texts[name])
    return schema
