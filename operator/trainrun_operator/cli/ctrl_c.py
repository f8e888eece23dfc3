"""Ctrl-C: while a command loads it exits silently; in a loop it first asks to stop, then stops.

Layer: cli, leaf. A KeyboardInterrupt during imports could print a traceback, or be swallowed where
Python must ignore exceptions. If SIGINT is ignored (`nohup`, a script's background job), it stays
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
    """Exit at once on Ctrl-C from now on: nothing was started that must be ended."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)


def loaded() -> None:
    """Raise KeyboardInterrupt on Ctrl-C from now on, so that open files and connections close."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def on_interrupt(
    interrupted: Callable[[], object],
    at_once: Callable[[], object],
    *,
    patience: float = 0.0,
    hopeless: Callable[[], bool] = lambda: False,
) -> None:
    """In the running loop, call `interrupted` once at the first SIGINT, SIGTERM or SIGHUP.

    Call `at_once` at each later Ctrl-C, and as soon as `hopeless` returns true: it is checked
    `patience` seconds after the first signal, then every CHECK_EVERY seconds. A later SIGHUP or
    SIGTERM does nothing: closed terminals, systemd and `timeout` send several for one request.
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
        # A signal that was ignored when we started stays ignored (nohup, a background job).
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal, number)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
