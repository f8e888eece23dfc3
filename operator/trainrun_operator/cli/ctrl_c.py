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


def leave_at_once() -> None:
    """From now on; nothing has been started yet that would have to be ended."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)


def loaded() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt, so that what is open gets closed."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def on_interrupt(interrupted: Callable[[], None]) -> None:
    """Call this in the loop that runs, each time that somebody wants us to end."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Ignored at our start: somebody wants it so (nohup, a job in the background).
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, interrupted)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
