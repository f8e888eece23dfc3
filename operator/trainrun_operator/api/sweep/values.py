"""Parameters as a user writes them: names, values, domains.

Layer: api. Invariants: a value is a finite number, a string, true or false; a domain has at least
one value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from trainrun.contract import variables
from trainrun_operator.api.base import ANY_TYPE, Hint, Model, Rule, matches, refuse

MAX_CHOICES = 64
MAX_TEXT = 1024
"""Characters of a value."""


def _scalar(value: object) -> object:
    match value:
        case str():
            fits = len(value) <= MAX_TEXT
        case float():
            fits = math.isfinite(value)  # the log is JSON, which has no other numbers
        case _:
            fits = isinstance(value, bool | int)
    if not fits:
        needed = "must be a finite number, true or false, or a string of at most "
        refuse([((), f"{needed}{MAX_TEXT} characters{_way_out(value)}")])
    return value


def _way_out(value: object) -> str:
    match value:
        case None:
            return '; write "none", and let the script convert it to None'
        case dict() | list():
            return "; give each of them a name, and let the script look up the name"
        case _:
            return ""


Value = Annotated[Any, AfterValidator(_scalar), WithJsonSchema({ANY_TYPE: True})]
"""A parameter's value."""

ParameterName = Annotated[
    str,
    Field(max_length=64),
    matches(
        r"^[A-Za-z][A-Za-z0-9_.-]*$",
        "must begin with a letter and consist of letters, digits, dots, dashes and underscores",
    ),
]
"""A parameter's name, at most 64 characters."""


def variable_of(name: str) -> str:
    """The environment variable for a parameter: `TRAINRUN_PARAM_LR`."""
    return variables.PARAMETER_PREFIX + "".join(c if c.isalnum() else "_" for c in name.upper())


BOUNDS = (
    Rule(
        # One value is allowed: the parameter can stay in the file when it is not searched.
        cel="self.low <= self.high",
        message="must not be below low",
        holds=lambda domain: domain.low <= domain.high,
        path=("high",),
    ),
    Rule(
        cel="!self.log || self.low > 0",
        message="must be above 0 where log is true",
        holds=lambda domain: not domain.log or domain.low > 0,
        path=("low",),
    ),
)
"""The rules for the bounds of both domains."""


class FloatDomain(Model):
    """Real numbers between two bounds."""

    RULES = BOUNDS

    low: Annotated[float, Field(allow_inf_nan=False)]
    """Least value."""
    high: Annotated[float, Field(allow_inf_nan=False)]
    """Greatest value."""
    log: bool = False
    """Drawn evenly by magnitude; needs low above 0. Default false."""
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Only low, low + step, and so on. Not together with log. Default: any number."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.step is not None:
            refuse(_steps(self.low, self.high, self.step, log=self.log))
        return self


class IntDomain(Model):
    """Whole numbers between two bounds."""

    RULES = BOUNDS

    low: Annotated[int, Field(ge=-(2**53), le=2**53)]
    """Least value."""
    high: Annotated[int, Field(ge=-(2**53), le=2**53)]
    """Greatest value."""
    log: bool = False
    """Drawn evenly by magnitude; needs low above 0. Default false."""
    step: Annotated[int, Field(ge=1, le=2**53)] = 1
    """Only low, low + step, and so on. Not together with log. Default 1."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(_steps(self.low, self.high, self.step, log=self.log and self.step > 1))
        return self


def _steps(low: float, high: float, step: float, *, log: bool) -> Iterator[tuple[tuple[str], str]]:
    if log:
        yield ("step",), "must be absent where log is true"
    elif high > low and step > high - low:
        yield ("step",), f"must not be above high - low ({high - low:g})"


class When(Model):
    """A condition on one parameter that is listed earlier."""

    name: ParameterName
    """The other parameter."""
    is_in: Annotated[tuple[Value, ...], Field(alias="in", min_length=1, max_length=MAX_CHOICES)]
    """The values for which the condition holds."""


class SearchedParameter(Model):
    """One dimension of the space: exactly one of float, int and choice."""

    RULES = (
        Rule(
            # CEL does not see choice, whose values are of any type.
            cel="!has(self.float) || !has(self.int)",
            message="must have exactly one of float, int and choice",
            holds=lambda axis: [axis.real, axis.whole, axis.choice].count(None) == 2,
        ),
    )

    name: ParameterName
    """Name by which the script reads it, at most 64 characters."""
    real: FloatDomain | None = Field(default=None, alias="float")
    """Real numbers."""
    whole: IntDomain | None = Field(default=None, alias="int")
    """Whole numbers."""
    choice: Annotated[tuple[Value, ...], Field(min_length=1, max_length=MAX_CHOICES)] | None = None
    """One of these: numbers, strings, true or false."""
    when: Annotated[
        tuple[When, ...], Field(max_length=8), Hint("write when: [{name: optimizer, in: [sgd]}]")
    ] = ()
    """Trials have this parameter only if all of these hold. Default: always."""
