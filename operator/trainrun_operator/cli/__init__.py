"""The `trainrun` command.

Layer: cli. Each command imports what it needs when it is called, so that `trainrun --help` and
completion are fast.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys

from trainrun_operator.cli.ctrl_c import leave_at_once
from trainrun_operator.cli.exit_codes import BAD_INPUT, FAILED

OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EPIPE)
"""Errors of an output that cannot be written; an error of another file has a filename."""


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
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard what is still buffered
        _print_error(f"error: cannot write the output: {error.strerror}")
        sys.exit(FAILED)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("trainrun"):
            raise
        # Workers need only the package without extras.
        _print_error(
            f"error: the `trainrun` command needs {error.name}, which is not installed; install it "
            "with all other requirements: pip install 'trainrun[cli]'"
        )
        sys.exit(BAD_INPUT)


def _open_closed() -> None:
    """Replace closed streams (`>&-`): writing to them fails, and no file that we open later gets
    their descriptors."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDONLY)  # gets the lowest free descriptor
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _print_error(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())
