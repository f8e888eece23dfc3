"""The `trainrun` command.

Layer: cli. Only click is imported up front; each command imports what it needs when it is called,
so that `trainrun --help` and completion are fast.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of the `trainrun` command."""
    from trainrun_operator.cli.commands import trainrun  # noqa: PLC0415 - click costs 20 ms

    trainrun()
