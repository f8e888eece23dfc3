"""Writes the stacks of this process's threads on a signal of its agent, to diagnose hangs.

Uses `faulthandler`, whose handler is written in C and needs no GIL, so it works even if a thread
never releases it. The signal is an unused real-time one: the script's own handlers stay as they
are.

Side effect: the handler does not restore errno, so a system call of the same thread that failed
within the last microsecond, before Python read errno, appears as `[Errno 0]` (measured with CPython
3.11: 4 of 500 signals, in a loop of failing calls). `chain=True` would restore it, but then two
signals at once overflow the handler's small stack.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

BELOW_THE_HIGHEST = 6
"""Distance of the first candidate from the highest signal; the next lower ones follow."""
CANDIDATES = 4

_file: TextIO | None = None
_signal = 0


def listen(path: Path | None) -> int:
    """Install the handler that writes to `path`; return its signal, 0 if that is impossible."""
    global _file, _signal  # noqa: PLW0603 - a process has its signals once
    if _signal or path is None:
        return _signal
    number = _free()
    if not number:
        return 0
    import faulthandler  # noqa: PLC0415 - keeps `import trainrun` fast

    try:
        _file = path.open("a")
        faulthandler.register(number, file=_file, all_threads=True, chain=False)
    except (OSError, ValueError, RuntimeError, AttributeError):
        return 0  # the folder was removed, or this system lacks the function
    _signal = number
    return number


def _free() -> int:
    """A signal that this process does not use; 0: there is none."""
    highest = int(getattr(signal, "SIGRTMAX", 0))
    if not highest:
        return 0
    first = highest - BELOW_THE_HIGHEST
    taken = range(first, first - CANDIDATES, -1)
    return next((n for n in taken if signal.getsignal(n) == signal.SIG_DFL), 0)
