"""What a command says that cannot do what it was asked for.

Layer: cli. Apart from the exit codes, which are imported before a command is known.
"""

from __future__ import annotations

import click

from trainrun.errors import StoreError, TrainRunError
from trainrun_operator.cli.exit_codes import BAD_INPUT, FAILED


def refused(error: TrainRunError) -> int:
    """Say it; return the exit code: a store that fails is no mistake in what was asked for."""
    click.echo(f"error: {error}", err=True)
    return FAILED if isinstance(error, StoreError) else BAD_INPUT
