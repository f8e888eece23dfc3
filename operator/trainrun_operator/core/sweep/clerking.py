"""Messages between a sweep's operator and its clerk: the log, and what it should hold.

Layer: core, pure. Both sides are level-triggered: the clerk reports the length of the log and sends
the records that the operator lacks; orders always list everything wanted. Either side may forget
everything, or repeat itself. Records of the log travel unchanged.
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
"""Version of both messages."""
CLERK = "/v1/clerk"
"""POST to the operator: a `ClerkState`, answered by `ClerkOrders`."""
REFUSED = "StorageMisconfigured"
"""Reason of trouble: the store refuses the clerk's credentials or settings."""
OF_THE_STORE = frozenset({"StorageUnavailable", REFUSED, "LogDamaged"})
"""Reasons of trouble with the storage, not with the clerk."""
ROOM = LARGEST_HEARTBEAT - 8 * 1024
"""Bytes of records in one message."""


class _Message:
    __slots__ = ()

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class ClerkState(_Message):
    """The message of a clerk."""

    sweep_uid: str
    position: int = 0
    """Number of records in the log."""
    sent_after: int = 0
    """Position of the record before the first of `records`."""
    records: tuple[LogEntry, ...] = ()
    """A piece of the log, in order, starting with the first record that the operator lacks."""
    trouble: ClerkUnknown | None = None
    """Why the log, or data stored by trials, cannot be read or written."""
    seen: str = ""
    """Digest of the orders that the clerk follows."""
    version: int = VERSION

    @staticmethod
    def from_json(data: object) -> ClerkState:
        """Raises `trainrun.contract.wire.MalformedMessage`."""
        return wire.decode(ClerkState, data, check=checked)


@dataclass(frozen=True, kw_only=True)
class ClerkOrders(_Message):
    """The operator's answer."""

    known: int = 0
    """Position up to which the operator has the log."""
    spec: dict[str, Any] = field(default_factory=dict)
    """The spec of the TrainSweep, unchanged."""
    targets: Targets | None = None
    """None: only read the log, write nothing."""
    working: bool = False
    """Trials are at work, so the active time counts."""
    version: int = VERSION

    @cached_property
    def digest(self) -> str:
        """Identifies the orders, regardless of `known`."""
        orders = wire.encode(self)
        orders.pop("known", None)
        text = json.dumps(orders, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @staticmethod
    def from_json(text: str | bytes) -> ClerkOrders:
        """Raises `trainrun.contract.wire.MalformedMessage`."""
        return wire.decode(ClerkOrders, wire.parsed(text))


def with_remedy(unknown: ClerkUnknown, *, secret: str) -> ClerkUnknown:
    """`unknown`, with advice on what to correct where the store refuses the clerk. `secret`: the
    Secret that `spec.storage` names; empty: none."""
    if unknown.reason != REFUSED:
        return unknown
    where = f"storage.credentialsSecretRef (Secret {secret})" if secret else "run.workers.template"
    message = (
        f"the store refuses the clerk: {unknown.message}. Correct the credentials of spec.{where}, "
        "or what the store names; the operator replaces the clerk from time to time to try again"
    )
    return replace(unknown, message=message)


def piece(records: tuple[LogEntry, ...], *, room: int = ROOM) -> tuple[LogEntry, ...]:
    """As many of these records as fit into one message, but at least one."""
    used = 0
    for count, record in enumerate(records):
        used += len(json.dumps(wire.encode(record), separators=(",", ":")))
        if used > room and count > 0:
            return records[:count]
    return records


@dataclass(frozen=True, slots=True, kw_only=True)
class ClerkConfig(_Message):
    """The configuration of a clerk: one JSON object in an environment variable."""

    sweep: str
    """Namespace and name, for messages."""
    sweep_uid: str
    storage: StorageConfig
    """`run_name` is the sweep's folder."""
    operator_url: str
    ca: str = ""
    """CA certificates (PEM) for the operator's certificate; empty: the system's."""
    token_file: str = ""
    """File with the token for requests; read before each request, since it is renewed."""

    @staticmethod
    def read(environ: Mapping[str, str]) -> ClerkConfig:
        """Read it from the variable; raises BadConfig if that is missing or cannot be read."""
        text = environ.get(variables.CLERK_CONFIG)
        if not text:
            raise BadConfig(
                f"{variables.CLERK_CONFIG} is not set; only the operator starts clerks, and sets it"
            )
        try:
            return wire.decode(ClerkConfig, wire.parsed(text))
        except wire.MalformedMessage as error:
            raise BadConfig(f"{variables.CLERK_CONFIG} cannot be read: {error}") from error
