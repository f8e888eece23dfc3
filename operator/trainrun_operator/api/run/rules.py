"""spec.failurePolicy.rules: what becomes of a run after an incident of a certain kind.

Layer: api. Matchers of one rule must all agree; in each of them one of the values must. Patterns
are RE2's, and no other: it takes time in proportion to the text, whatever the pattern is, so no
pattern stops an operator that leads a thousand runs. The API server reads it alike, since CEL has
the same syntax. What the core makes of the rules says
`core/run/incidents/ledger.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

import re2
from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from trainrun_operator.api.base import CEL_RULES, Model, cel_entry, matches, refuse
from trainrun_operator.api.run.status_parts import Cause

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
                refuse([((), f"{MUST} ({error})")])
            return value

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """For the API server: a rule whose pattern cannot be read fails to evaluate."""
        rule = cel_entry("''.matches(self) in [true, false]", MUST, ())
        return {**handler(schema), CEL_RULES: [rule]}


RuleAction = Literal["FailRun", "Restart", "RestartUncounted", "RestartAvoidingNode"]

SignalName = Literal[
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGSYS",
]
"""Those that end a process, of Linux, in the order of their numbers."""

ExceptionName = Annotated[
    str,
    Field(min_length=1, max_length=120),
    matches(
        r"^[^\s.:]+(\.[^\s.:]+)*$",
        "must be the name of an exception class such as FloatingPointError or "
        "torch.OutOfMemoryError",
    ),
]


class FailureRule(Model):
    """What becomes of the run after an incident that all matchers of the rule agree on. A rule
    without matchers is for every incident."""

    name: (
        Annotated[
            str,
            Field(max_length=63),
            matches(
                r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
                "must consist of letters, digits, dashes, dots and underscores, and begin and end "
                "with a letter or digit",
            ),
        ]
        | None
    ) = None
    """For people: shown where the rule decides. At most 63 characters. Default: none."""
    action: RuleAction
    """FailRun: the run fails. Restart: as without rules, charged to the budget of its cause.
    RestartUncounted: a restart that is charged to no budget, five times in a row without a new
    step, and from then on to that of its cause. RestartAvoidingNode: a restart that is charged, and
    all workers of the run on the node of the culprit are replaced, on other nodes where they find
    room within a minute."""
    exit_codes: Annotated[
        tuple[Annotated[int, Field(ge=1, le=255)], ...], Field(max_length=64)
    ] = ()
    """Exit codes of the culprit, 1 to 255; 128 + number where a signal ended it."""
    signals: Annotated[tuple[SignalName, ...], Field(max_length=18)] = ()
    """Signals that ended the culprit, such as SIGSEGV."""
    exceptions: Annotated[tuple[ExceptionName, ...], Field(max_length=32)] = ()
    """Classes of the exception that ended the culprit, bases included: with its module, as
    torch.OutOfMemoryError, or without it for a class of this name of any module. Of a process that
    does not import trainrun only the class itself is known."""
    message_pattern: (
        Annotated[str, Field(min_length=1, max_length=256), RegularExpression()] | None
    ) = None
    """Regular expression in the syntax of RE2, at most 256 characters, that the message of the
    incident has somewhere in it."""
    causes: Annotated[tuple[Cause, ...], Field(max_length=32)] = ()
    """Causes, such as AppError or NodeLost. What a script said by FatalError or RetryError is
    decided by a rule only where it names that cause or exception."""
    ranks: Annotated[tuple[Annotated[int, Field(ge=0, le=65535)], ...], Field(max_length=64)] = ()
    """Ranks of the culprit."""
    containers: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=63)], ...],
        Field(max_length=16),
    ] = ()
    """Containers in which the culprit ended: the one that trains, or an init container."""
