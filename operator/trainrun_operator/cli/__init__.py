"""The `trainrun` command.

Layer: cli. Hardly anything is imported up front; each command imports what it needs when it is
called, so that `trainrun --help` and completion are fast.
"""

from __future__ import annotations

import sys

from trainrun_operator.cli.ctrl_c import leave_at_once
from trainrun_operator.cli.exit_codes import BAD_INPUT


def main() -> None:
    """Entry point of the `trainrun` command."""
    leave_at_once()
    try:
        from trainrun_operator.cli.commands import trainrun  # noqa: PLC0415 - click costs 20 ms

        trainrun()
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("trainrun"):
            raise
        # The package alone is what a worker needs.
        sys.stderr.write(
            f"error: the `trainrun` command needs {error.name}, which is not installed; install "
            "the extra with all that it needs: pip install 'trainrun[operator]'\n"
        )
        sys.exit(BAD_INPUT)
