"""Regular expressions of a user, which the operator searches texts with: RE2, and no other.

Layer: api. RE2 takes time in proportion to the text, whatever the pattern is: no pattern stops an
operator that leads a thousand runs. The API server reads it alike, since CEL has the same syntax.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import re2
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from trainrun_operator.api.base import BROKEN_RULE, CEL_RULES, BrokenRule, cel_entry

MUST = "must be a regular expression in the syntax of RE2"

MEMORY = 1 << 20
"""Bytes that a compiled pattern may take: nobody writes by hand what needs more."""

Search = Callable[[str], bool]


class BadPattern(ValueError):
    """It is none in RE2's syntax; the message says why."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Search:
    """Whether a text has the pattern somewhere in it. Raises BadPattern."""
    options = re2.Options()
    options.max_mem, options.log_errors = MEMORY, False
    try:
        found = re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise BadPattern(text) from error

    def search(text: str) -> bool:
        return found.search(text.encode(errors="replace")) is not None

    return search


class RegularExpression:
    """A string that is a pattern: use it in Annotated[]."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check the pattern after the string itself was checked."""

        def check(value: Any) -> Any:
            try:
                compiled(value)
            except BadPattern as error:
                broken = (BrokenRule(path=(), message=f"{MUST} ({error})"),)
                text = broken[0].message
                raise PydanticCustomError(
                    BROKEN_RULE, "{text}", {"text": text, "broken": broken}
                ) from error
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """For the API server: a rule whose pattern cannot be read fails to evaluate."""
        rule = cel_entry("''.matches(self) in [true, false]", MUST, ())
        return {**handler(schema), CEL_RULES: [rule]}
