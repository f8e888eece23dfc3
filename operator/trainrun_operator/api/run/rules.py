"""spec.failurePolicy.rules: what happens to a run after an incident of a certain kind.

Layer: api. All matchers of a rule must match; a matcher matches if one of its values does. Patterns
use RE2: its time is proportional to the text, whatever the pattern, so a pattern cannot block an
operator that leads a thousand runs. The API server reads patterns in the same way, since CEL has
the same syntax. `core/run/incidents/ledger.py` applies the rules.
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
"""Bytes that a compiled pattern may take: patterns written by hand need less."""

Search = Callable[[str], bool]


class BadPattern(ValueError):
    """A pattern does not have RE2's syntax; the message says why."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Search:
    """A function that returns whether the pattern occurs in a text. Raises BadPattern."""
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
        """Check the pattern after the string."""

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
        """For the API server: a rule whose evaluation fails where the pattern is not valid."""
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
"""The signals of Linux that end a process, in the order of their numbers."""

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
    """What happens to the run after an incident that all matchers of the rule match. A rule without
    matchers matches every incident."""

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
    """For people: shown when the rule decides. At most 63 characters. Default: none."""
    action: RuleAction
    """FailRun: the run fails. Restart: as without rules, charged to the budget of its cause.
    RestartUncounted: a restart that costs no budget; after five in a row without a new step, it is
    charged to the budget of its cause. RestartAvoidingNode: a charged restart that also replaces
    all workers of the run on the culprit's node, on other nodes if they find room within a
    minute."""
    exit_codes: Annotated[
        tuple[Annotated[int, Field(ge=1, le=255)], ...], Field(max_length=64)
    ] = ()
    """Exit codes of the culprit, 1 to 255; 128 + the signal's number if a signal ended it."""
    signals: Annotated[tuple[SignalName, ...], Field(max_length=18)] = ()
    """Signals that ended the culprit, such as SIGSEGV."""
    exceptions: Annotated[tuple[ExceptionName, ...], Field(max_length=32)] = ()
    """Classes of the exception that ended the culprit, base classes included: with the module, as
    in torch.OutOfMemoryError, or without it for a class of this name in any module. For a process
    that does not import trainrun only the class itself is known."""
    message_pattern: (
        Annotated[str, Field(min_length=1, max_length=256), RegularExpression()] | None
    ) = None
    """Regular expression in the syntax of RE2 that must occur in the incident's message. At most
    256 characters."""
    causes: Annotated[tuple[Cause, ...], Field(max_length=32)] = ()
    """Causes, such as AppError or NodeLost. A rule overrides FatalError or RetryError, by which a
    script decides itself, only if it names that cause or exception."""
    ranks: Annotated[tuple[Annotated[int, Field(ge=0, le=65535)], ...], Field(max_length=64)] = ()
    """Ranks of the culprit."""
    containers: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=63)], ...],
        Field(max_length=16),
    ] = ()
    """Containers in which the culprit ended: the container that trains, or an init container."""
