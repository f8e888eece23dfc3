"""The way to the operator: which one is tried next, and how both sides know each other.

Layer: agent. The way through the Service is made by the node's kube-proxy, which may not know of a
new leader. Every operator says where all of them are, with each response. Invariants: the Service
comes first, and for a moment alone; a way that leads to the leader is kept; all are tried before
there is a pause.

The operator's certificate must be signed by the authority that the configuration carries, whatever
the image trusts besides. Tokens are renewed while the agent runs, so the file that holds one is
read again for each request.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from trainrun.contract.agent_config import AgentConfig, BadConfig

SERVICE = ""
"""The way by the address that the configuration names."""
SERVICE_SECONDS = 2.0
"""So long the Service alone is tried: most hand-overs take no longer, and a fleet that knocks at
the next leader's door before it leads would only hold it up."""
MOST_OPERATORS = 8
"""Addresses that are kept."""


@dataclass(slots=True)
class Ways:
    """The ways of one agent to the leader."""

    operators: tuple[str, ...] = ()
    """`address:port` of each, the leader first, as far as it is known."""
    way: str = SERVICE
    """The one to use now."""
    _tried: set[str] = field(default_factory=set)
    """Those that have led nowhere since the last answer, or the last pause."""
    _lost_since: float | None = None
    """Since when no leader is found."""

    def learn(self, operators: tuple[str, ...]) -> None:
        """An operator has said where all of them are; those that say nothing change nothing."""
        if operators:
            self.operators = operators[:MOST_OPERATORS]

    def found(self) -> None:
        """The leader answers on this way."""
        self._tried.clear()
        self._lost_since = None

    def lost(self, since: float, now: float) -> bool:
        """This way has led to no leader since then, in monotonic seconds.

        True: there is another one, to be tried at once; False: after a pause, from the first on.
        """
        if self._lost_since is None:
            self._lost_since = since
        self._tried.add(self.way)
        beside = self.operators if now - self._lost_since >= SERVICE_SECONDS else ()
        untried = [way for way in (SERVICE, *beside) if way not in self._tried]
        if not untried:
            self._tried.clear()
        self.way = untried[0] if untried else SERVICE
        return bool(untried)


class NoToken(OSError):
    """The token's file cannot be read now."""


def tls_context(config: AgentConfig) -> ssl.SSLContext | None:
    """Return how `operator_url` is verified; None where it is plain HTTP.

    Raises BadConfig when `ca` holds no certificate.
    """
    if urlsplit(config.operator_url).scheme != "https":
        return None
    try:
        # With certificates given, those of the system are not loaded.
        return ssl.create_default_context(cadata=config.ca or None)
    except (ssl.SSLError, ValueError) as error:
        raise BadConfig(f"the field ca holds no certificate in PEM form: {error}") from error


def token_source(config: AgentConfig) -> Callable[[], str]:
    """Return what gives the token for a request; it raises NoToken."""
    if not config.token_file:
        return lambda: config.token
    file = Path(config.token_file)

    def read() -> str:
        try:
            return file.read_text().strip()
        except OSError as error:
            raise NoToken(f"the token cannot be read from {file}: {error.strerror}") from error

    return read


def explain_connection(error: OSError) -> str:
    """Say what went wrong with a connection, and what to look at where that is not plain."""
    if isinstance(error, NoToken):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); either it is not the "
            "operator, or its authority was replaced since this worker was created"
        )
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection: {error.reason or error}"
    return repr(error)
