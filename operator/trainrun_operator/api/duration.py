"""Durations as users write them in a resource: `90s`, `1h30m`, `500ms`.

Layer: api. The grammar is a subset of Go's, which the API server's CEL function duration() reads:
whole numbers of h, m, s and ms, each at most once and in this order. There are no days, since CEL
has none.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from trainrun_operator.api.base import Rule, refuse

# The digits are limited so that the sum cannot overflow CEL's durations (292 years).
PATTERN = r"^([0-9]{1,6}h)?([0-9]{1,7}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$"
"""The pattern of a duration. It also matches the empty string, which minLength refuses."""

_PARTS = re.compile(PATTERN)
_UNITS = ("hours", "minutes", "seconds", "milliseconds")
_MAX_LENGTH = 32
_ALLOWED = "must be a duration such as 90s, 1h30m or 500ms (units h, m, s, ms, in this order)"


class Duration(str):
    """A duration as the user wrote it; `seconds` and `timedelta` give its length."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Read `text`; raises ValueError if it is not a duration."""
        if not text or len(text) > _MAX_LENGTH or _PARTS.fullmatch(text) is None:
            refuse([((), _ALLOWED)])
        return super().__new__(cls, text)

    @property
    def timedelta(self) -> timedelta:
        """The length as a timedelta."""
        match = _PARTS.fullmatch(self)
        assert match is not None, "checked in __new__"
        numbers = (int((part or "0").rstrip("hms")) for part in match.groups())
        return timedelta(**dict(zip(_UNITS, numbers, strict=True)))

    @property
    def seconds(self) -> float:
        """The length in seconds, with fractions."""
        return self.timedelta.total_seconds()

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Read from a string and written back unchanged."""
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.str_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """A string with a pattern."""
        return {"type": "string", "minLength": 2, "maxLength": _MAX_LENGTH, "pattern": PATTERN}


def between(low: str, high: str) -> Rule:
    """The rule that a duration lies between these two, inclusive."""
    shortest, longest = Duration(low).timedelta, Duration(high).timedelta
    return Rule(
        cel=f"duration(self) >= duration('{low}') && duration(self) <= duration('{high}')",
        message=f"must be between {low} and {high}",
        holds=lambda value: shortest <= value.timedelta <= longest,
    )
