"""Signals by their numbers on Linux, and which of them ended the culprit of an incident.

Layer: core, leaf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun_operator.api.run.incident import Incident

NUMBERS = {
    "SIGHUP": 1,
    "SIGINT": 2,
    "SIGQUIT": 3,
    "SIGILL": 4,
    "SIGTRAP": 5,
    "SIGABRT": 6,
    "SIGBUS": 7,
    "SIGFPE": 8,
    "SIGKILL": 9,
    "SIGUSR1": 10,
    "SIGSEGV": 11,
    "SIGUSR2": 12,
    "SIGPIPE": 13,
    "SIGALRM": 14,
    "SIGTERM": 15,
    "SIGXCPU": 24,
    "SIGXFSZ": 25,
    "SIGSYS": 31,
}
NAMES = {number: name for name, number in NUMBERS.items()}

HIGHEST = 64
"""Linux has signals 1 to 64; an exit code of 128 + one of them tells that it ended the process."""


def signal_of(incident: Incident) -> int | None:
    """The signal that ended the culprit, as far as its exit code tells."""
    code = incident.exit_code
    if incident.rank is None or code is None or not 128 < code <= 128 + HIGHEST:
        return None
    return code - 128
