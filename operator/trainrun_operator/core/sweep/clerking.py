"""What a sweep's operator and its clerk tell each other: the log, and what it is to hold.

Layer: core, pure; messages. Both are level-triggered: the clerk says how long the log is and sends
what the operator says it lacks; orders are all of what is wanted. Either may forget everything, or
say it twice. What an object of the log holds travels as it stands there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trainrun.contract import variables, wire
from trainrun.contract.agent_config import BadConfig, StorageConfig
from trainrun.contract.wire import LARGEST_HEARTBEAT, checked
from trainrun.sweep.records import LogEntry, Targets
from trainrun_operator.core.sweep.boundary import ClerkUnknown

VERSION = 1
"""Of both messages."""
CLERK = "/v1/clerk"
"""POST to the operator: a `ClerkState`, answered by `ClerkOrders`."""
REFUSED = "StorageMisconfigured"
"""Reason of trouble: the store does not take the credentials or settings that the clerk has."""
OF_THE_STORE = frozenset({"StorageUnavailable", REFUSED, "LogDamaged"})
"""Reasons of trouble that is the storage's, and not the clerk's."""
ROOM = LARGEST_HEARTBEAT - 8 * 1024
"""Bytes of records in one message."""


class _Message:
    __slots__ = ()

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class ClerkState(_Message):
    """What a clerk says."""

    sweep_uid: str
    position: int = 0
    """Records that the log has."""
    sent_after: int = 0
    """Position of the record before the first of `records`."""
    records: tuple[LogEntry, ...] = ()
    """A piece of the log, in order, from the one on that the operator lacks."""
    trouble: ClerkUnknown | None = None
    """Why the log, or what trials have stored, cannot be read or written."""
    seen: str = ""
    """Digest of the orders that it goes by."""
    version: int = VERSION

    @staticmethod
    def from_json(data: object) -> ClerkState:
        """Raises `trainrun.contract.wire.MalformedMessage`."""
        return wire.decode(ClerkState, data, check=checked)


@dataclass(frozen=True, kw_only=True)
class ClerkOrders(_Message):
    """What an operator answers."""

    known: int = 0
    """Position up to which it has the log."""
    spec: dict[str, Any] = field(default_factory=dict)
    """Of the TrainSweep, as it stands there."""
    targets: Targets | None = None
    """None: the log is to be read, and left as it is."""
    working: bool = False
    """Trials are at work: the time counts."""
    version: int = VERSION

    @cached_property
    def digest(self) -> str:
        """Tells orders apart, whatever of the log is known."""
        said = wire.encode(self)
        said.pop("known", None)
        text = json.dumps(said, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @staticmethod
    def from_json(text: str | bytes) -> ClerkOrders:
        """Raises `trainrun.contract.wire.MalformedMessage`."""
        return wire.decode(ClerkOrders, wire.parsed(text))


def with_remedy(unknown: ClerkUnknown, *, secret: str) -> ClerkUnknown:
    """Where the store refuses its clerk: what is to be corrected. `secret` is the one that
    `spec.storage` names; empty: none."""
    if unknown.reason != REFUSED:
        return unknown
    where = f"storage.credentialsSecretRef (Secret {secret})" if secret else "run.workers.template"
    message = (
        f"the store refuses the clerk: {unknown.message}. Correct the credentials of spec.{where}, "
        "or what the store names; the clerk is made anew now and then to see it"
    )
    return replace(unknown, message=message)


def piece(records: tuple[LogEntry, ...], *, room: int = ROOM) -> tuple[LogEntry, ...]:
    """As many of these as one message has room for, and at least one."""
    used = 0
    for count, record in enumerate(records):
        used += len(json.dumps(wire.encode(record), separators=(",", ":")))
        if used > room and count > 0:
            return records[:count]
    return records


@dataclass(frozen=True, slots=True, kw_only=True)
class ClerkConfig(_Message):
    """What a clerk is told at its start: one JSON object in an environment variable."""

    sweep: str
    """Namespace and name, for messages."""
    sweep_uid: str
    storage: StorageConfig
    """Its `run_name` is the sweep's folder."""
    operator_url: str
    ca: str = ""
    """Certificates (PEM) of which one must have signed the operator's; empty: the system's."""
    token_file: str = ""
    """Holds the token to show, read before each request, since it is renewed."""

    @staticmethod
    def read(environ: Mapping[str, str]) -> ClerkConfig:
        """Raises BadConfig where the variable is missing or cannot be read."""
        text = environ.get(variables.CLERK_CONFIG)
        if not text:
            raise BadConfig(
                f"{variables.CLERK_CONFIG} is not set; the operator, which makes clerks, sets it"
            )
        try:
            return wire.decode(ClerkConfig, wire.parsed(text))
        except wire.MalformedMessage as error:
            raise BadConfig(f"{variables.CLERK_CONFIG} cannot be read: {error}") from error
