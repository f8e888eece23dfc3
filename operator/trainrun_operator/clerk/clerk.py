"""The clerk's life: read what trials have stored, write what the operator wants, tell both.

Layer: clerk. Without an operator it goes on by the last orders.
"""

from __future__ import annotations

import asyncio
import logging

from trainrun._common.backoff import Backoff
from trainrun.checkpoint.run_store import RunStore
from trainrun_operator.clerk.line import NoOperator, OperatorLine
from trainrun_operator.runtime.clerk_work import ClerkWork

READ_EVERY = 2.0
"""Seconds between two looks at what trials have stored, while some are open."""
LONGEST_WAIT = 10.0
"""Seconds that the operator is asked to hold an answer back where none are."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between tries while no operator answers."""

_log = logging.getLogger("trainrun.clerk")


class Clerk:
    """Of one sweep."""

    def __init__(self, folder: RunStore, *, sweep_uid: str) -> None:
        """`folder` is the sweep's."""
        self._work = ClerkWork(folder, sweep_uid=sweep_uid)
        self._said = ""

    async def serve(self, line: OperatorLine) -> None:
        """For ever. Raises SweepGone."""
        backoff, work = Backoff(FIRST_PAUSE, LONGEST_PAUSE), self._work
        while True:
            await asyncio.to_thread(work.settle)
            wait = READ_EVERY if work.busy else LONGEST_WAIT
            try:
                work.hear(await line.ask(work.state(), wait=wait))
            except NoOperator as error:
                self._say(str(error))
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self._say("")

    def _say(self, text: str) -> None:
        """Once, not with every try."""
        if text and text != self._said:
            _log.warning("%s", text)
        self._said = text
