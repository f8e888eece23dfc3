"""How the agent knows the operator, and shows that it is a pod of the run.

Layer: agent, leaf. The operator's certificate must be signed by the authority that the
configuration carries, whatever the image trusts besides. Tokens are renewed while the agent runs,
so the file that holds one is read again for each request.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from trainrun.contract.agent_config import AgentConfig, BadConfig


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


def explain(error: OSError) -> str:
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
