"""The clerk of a sweep in a cluster, as a process: `python -m trainrun_operator.clerk`.

Layer: clerk, composition root. It reads what trials have stored, writes the records that the
operator wants, and sends the log to the operator, over one connection, one request at a time.
Without an operator it follows the last orders. Exit codes: 0 the sweep is gone, 2 the configuration
cannot be read. SIGTERM ends it at once: the next clerk writes what is missing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import sys
from pathlib import Path
from types import TracebackType

import aiohttp

from trainrun._common.backoff import Backoff
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract.agent_config import BadConfig
from trainrun.contract.wire import MalformedMessage
from trainrun.errors import StoreError
from trainrun_operator.core.sweep.clerking import CLERK, ClerkConfig, ClerkOrders, ClerkState
from trainrun_operator.runtime.clerk_work import ClerkWork
from trainrun_operator.runtime.line_writers import non_blocking

PATIENCE = 10.0
"""Seconds for an answer, in addition to the wait that the operator was asked for."""
GONE = 410
READ_EVERY = 2.0
"""Seconds between two reads of what trials have stored, while some are open."""
LONGEST_WAIT = 10.0
"""Seconds that the operator should hold back its answer while none are open."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between tries while no operator answers."""

_log = logging.getLogger("trainrun.clerk")


class NoOperator(Exception):
    """No leading operator has answered."""


class SweepGone(Exception):
    """The operator does not lead such a sweep."""


class OperatorLine:
    """The connection of one clerk to the operator."""

    def __init__(self, config: ClerkConfig) -> None:
        self._config = config
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> OperatorLine:
        """Open it. Raises ssl.SSLError if `ca` holds no certificate."""
        config = self._config
        tls = ssl.create_default_context(cadata=config.ca) if config.ca else True
        # A failed connection is closed: the name may lead to another leader by then.
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
        """Send the state and return the orders. The operator holds the answer back for up to `wait`
        seconds while nothing is new.

        Raises NoOperator, SweepGone.
        """
        assert self._session is not None, "called within `async with`"
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
            text = body.decode(errors="replace")[:500]
            raise NoOperator(f"the operator answers {response.status}: {text}")
        try:
            return ClerkOrders.from_json(body)
        except MalformedMessage as error:
            raise NoOperator(f"the operator's orders cannot be read: {error}") from error

    def _identity(self) -> dict[str, str]:
        if not self._config.token_file:
            return {}
        token = Path(self._config.token_file).read_text().strip()
        return {"Authorization": f"Bearer {token}"}


class Clerk:
    """The clerk of one sweep."""

    def __init__(self, folder: RunStore, *, sweep_uid: str) -> None:
        """`folder` is the sweep's folder."""
        self._work = ClerkWork(folder, sweep_uid=sweep_uid)
        self._last_warning = ""

    async def serve(self, line: OperatorLine) -> None:
        """Work and exchange messages without end. Raises SweepGone."""
        backoff, work = Backoff(FIRST_PAUSE, LONGEST_PAUSE), self._work
        while True:
            await asyncio.to_thread(work.settle)
            wait = READ_EVERY if work.busy else LONGEST_WAIT
            try:
                work.hear(await line.ask(work.state(), wait=wait))
            except NoOperator as error:
                self._warn(str(error))
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self._warn("")

    def _warn(self, text: str) -> None:
        """Log the text once, not at every try."""
        if text and text != self._last_warning:
            _log.warning("%s", text)
        self._last_warning = text


async def _serve(config: ClerkConfig, folder: RunStore) -> None:
    async with OperatorLine(config) as line:
        try:
            await Clerk(folder, sweep_uid=config.sweep_uid).serve(line)
        except SweepGone as gone:
            _log.info("%s", gone)


@non_blocking(patience=1.0)
def main() -> int:
    """Run the clerk that the environment configures; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # Process 1 of a container ignores a SIGTERM without a handler.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    try:
        config = ClerkConfig.read(os.environ)
        storage = config.storage
        store = open_store(storage.uri, endpoint_url=storage.endpoint_url, region=storage.region)
    except (BadConfig, StoreError) as error:
        sys.stderr.write(f"trainrun clerk: {error}\n")
        return 2
    _log.info("the clerk of %s starts", config.sweep)
    asyncio.run(_serve(config, RunStore(store, storage.run_name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
