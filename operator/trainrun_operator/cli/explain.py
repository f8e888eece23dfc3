"""`trainrun explain`: what became of a run, what it cost, and what to change.

Layer: cli. Reads its storage and, where there is one, its status; with the user's own credentials.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from trainrun.errors import TrainRunError
from trainrun_operator.cli.exit_codes import SUCCEEDED
from trainrun_operator.cli.explaining.as_json import as_json
from trainrun_operator.cli.explaining.extras import extras_of
from trainrun_operator.cli.explaining.life import Life, life_of
from trainrun_operator.cli.explaining.page import page
from trainrun_operator.cli.explaining.text import lines
from trainrun_operator.cli.finding import find_runs
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.sources import Source, UnknownRun


def explain(
    where: str,
    *,
    storage: str | None,
    namespace: str | None,
    generation: int | None,
    to_json: bool,
    html: Path | None,
) -> int:
    """Print the story of each run that `where` names; returns the exit code."""
    try:
        found = find_runs(where, storage=storage, namespace=namespace)
        lives = [life_of(run, generation=generation) for run in found]
    except TrainRunError as error:
        return refused(error)
    if html is not None:
        return _write(found, lives, generation, html)
    for life in lives:
        if to_json:
            click.echo(json.dumps(as_json(life)))
        else:
            for line in lines(life):
                click.echo(line)
    return SUCCEEDED


def _write(found: list[Source], lives: list[Life], generation: int | None, file: Path) -> int:
    if len(lives) != 1:
        names = ", ".join(life.uri for life in lives)
        return refused(UnknownRun(f"a page tells of one run; name one of them: {names}"))
    extras = extras_of(found[0], lives[0], generation=generation)
    try:
        file.write_text(page(lives[0], extras), encoding="utf-8")
    except OSError as error:
        return refused(UnknownRun(f"{file} cannot be written: {error.strerror}"))
    click.echo(f"written to {file}")
    return SUCCEEDED
