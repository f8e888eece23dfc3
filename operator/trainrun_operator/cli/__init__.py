"""The `trainrun` command.

Layer: cli. Hardly anything is imported up front; each command imports what it needs when it is
called, so that `trainrun --help` and completion are fast.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from trainrun_operator.cli.ctrl_c import leave_at_once
from trainrun_operator.cli.exit_codes import BAD_INPUT, FAILED

OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EPIPE)
"""What an output fails with that takes no more; other files are named by their errors."""


def main() -> None:
    """Entry point of the `trainrun` command."""
    leave_at_once()
    _open_closed()
    try:
        from trainrun_operator.cli.commands import trainrun  # noqa: PLC0415 - click costs 20 ms

        try:
            trainrun()
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in OUTPUT_ERRORS or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what waits there goes nowhere
        _print_error(f"error: the output cannot be written: {error.strerror}")
        sys.exit(FAILED)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("trainrun"):
            raise
        # The package alone is what a worker needs.
        _print_error(
            f"error: the `trainrun` command needs {error.name}, which is not installed; install "
            "the extra with all that it needs: pip install 'trainrun[operator]'"
        )
        sys.exit(BAD_INPUT)


def _open_closed() -> None:
    """A stream that was closed (`>&-`) refuses what is written, and no file of ours takes its
    place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDONLY)  # gets the lowest number that is free
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _print_error(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())
