"""The clerk's line to its operator: one connection, one request at a time.

Layer: clerk.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from types import TracebackType

import aiohttp

from trainrun.contract.wire import MalformedMessage
from trainrun_operator.core.sweep.clerking import CLERK, ClerkConfig, ClerkOrders, ClerkState

PATIENCE = 10.0
"""Seconds for an answer, besides what the operator was asked to wait."""
GONE = 410


class NoOperator(Exception):
    """No leader has answered."""


class SweepGone(Exception):
    """The operator knows of no such sweep."""


class OperatorLine:
    """Of one clerk."""

    def __init__(self, config: ClerkConfig) -> None:
        self._config = config
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> OperatorLine:
        """Raises ssl.SSLError where `ca` holds no certificate."""
        config = self._config
        tls = ssl.create_default_context(cadata=config.ca) if config.ca else True
        # One that is closed after each failure: behind the name may be another leader by then.
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, limit=1))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        if self._session is not None:
            await self._session.close()

    async def ask(self, state: ClerkState, *, wait: float) -> ClerkOrders:
        """Tell how things are, and hear what is wanted, within `wait` seconds where that is known.

        Raises NoOperator, SweepGone.
        """
        assert self._session is not None, "asked within `async with`"
        try:
            async with self._session.post(
                f"{self._config.operator_url}{CLERK}?wait={wait:.2f}",
                data=state.to_json(),
                headers=self._identity(),
                timeout=aiohttp.ClientTimeout(total=wait + PATIENCE),
            ) as response:
                body = await response.read()
        except (OSError, aiohttp.ClientError) as error:
            raise NoOperator(f"the operator cannot be reached: {error!r}") from error
        if response.status == GONE:
            raise SweepGone(body.decode(errors="replace"))
        if response.status != 200:
            said = body.decode(errors="replace")[:500]
            raise NoOperator(f"the operator answers {response.status}: {said}")
        try:
            return ClerkOrders.from_json(body)
        except MalformedMessage as error:
            raise NoOperator(f"the operator's orders cannot be read: {error}") from error

    def _identity(self) -> dict[str, str]:
        if not self._config.token_file:
            return {}
        token = Path(self._config.token_file).read_text().strip()
        return {"Authorization": f"Bearer {token}"}
