"""What a clerk is told at its start: whose clerk it is, where the log lies, whom it asks.

Layer: clerk. One JSON object in the environment variable `TRAINRUN_CLERK_CONFIG`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from trainrun.contract import wire
from trainrun.contract.agent_config import BadConfig, StorageConfig
from trainrun_operator.core.sweep.clerking import CLERK_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class ClerkConfig:
    """The configuration of one clerk."""

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

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(wire.encode(self), separators=(",", ":"))

    @staticmethod
    def read(environ: Mapping[str, str]) -> ClerkConfig:
        """Raises BadConfig where the variable is missing or cannot be read."""
        text = environ.get(CLERK_CONFIG)
        if not text:
            raise BadConfig(f"{CLERK_CONFIG} is not set; the operator, which makes clerks, sets it")
        try:
            return wire.decode(ClerkConfig, wire.parsed(text))
        except wire.MalformedMessage as error:
            raise BadConfig(f"{CLERK_CONFIG} cannot be read: {error}") from error
