"""This process writes where its threads stand, when its agent asks: for a training that hangs.

By `faulthandler`, whose handler is written in C: it needs no GIL, so it also answers while a thread
holds it for ever. A real-time signal that nobody uses: a script's own handlers stay as they are.

What it disturbs: the handler does not give errno back, so a system call of the same thread that has
just failed, within the microsecond before Python reads why, is told to have failed with `[Errno 0]`
(measured with CPython 3.11: 4 of 500 signals, in a loop that does nothing but fail). With
`chain=True` it does give it back, and two signals at once overflow its small stack.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

BELOW_THE_HIGHEST = 6
"""The first candidate is so far below the highest signal; the few below it are tried, too."""
CANDIDATES = 4

_file: TextIO | None = None
_signal = 0


def listen(path: Path | None) -> int:
    """Write to `path` on a signal from now on; return its number, 0 where that is not possible."""
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
        return 0  # no such folder any more, or no such function on this system
    _signal = number
    return number


def _free() -> int:
    """A signal that means nothing to anybody here; 0 where there is none."""
    highest = int(getattr(signal, "SIGRTMAX", 0))
    if not highest:
        return 0
    first = highest - BELOW_THE_HIGHEST
    taken = range(first, first - CANDIDATES, -1)
    return next((n for n in taken if signal.getsignal(n) == signal.SIG_DFL), 0)
