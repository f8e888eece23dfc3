"""`trainrun sweep` asked about a log."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from trainrun_operator.cli.commands import trainrun


def ask(*words: str | Path) -> Result:
    return CliRunner().invoke(trainrun, ["sweep", *map(str, words)])
