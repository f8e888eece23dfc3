"""Ctrl-C while a command is loaded: it leaves at once, without a word.

Layer: cli, leaf. An exception in the midst of imports could end in a traceback, or in nothing where
Python must ignore it. Where SIGINT is ignored (`nohup`, a script's job in the background), it stays
ignored.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType

from trainrun_operator.cli.exit_codes import INTERRUPTED

CHECK_EVERY = 1.0
"""Seconds."""


def leave_at_once() -> None:
    """From now on; nothing has been started yet that would have to be ended."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)


def loaded() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt, so that what is open gets closed."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def on_interrupt(
    interrupted: Callable[[], object],
    at_once: Callable[[], object],
    *,
    patience: float = 0.0,
    hopeless: Callable[[], bool] = lambda: False,
) -> None:
    """In the loop that runs, call the first one once when somebody wants us to end, and `at_once`
    with each Ctrl-C after that, and where it is `hopeless` `patience` seconds later or at any time
    after that.

    SIGHUP and SIGTERM do not come alone (a terminal that closes, systemd, `timeout`): several of
    them ask for one thing.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def check() -> None:
        if hopeless():
            at_once()
        else:
            loop.call_later(CHECK_EVERY, check)

    def on_signal(number: int) -> None:
        nonlocal asked
        if not asked:
            asked = True
            interrupted()
            loop.call_later(patience, check)
        elif number == signal.SIGINT:
            at_once()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Ignored at our start: somebody wants it so (nohup, a job in the background).
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal, number)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
