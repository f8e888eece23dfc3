"""`trainrun explain`: what became of a run or a search, what it cost, and what to change.

Layer: cli. Reads its storage and, where there is one, its status; with the user's own credentials.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.cli.exit_codes import SUCCEEDED
from trainrun_operator.cli.explaining.as_json import as_json
from trainrun_operator.cli.explaining.extras import extras_of
from trainrun_operator.cli.explaining.life import Life, life_of
from trainrun_operator.cli.explaining.page import page
from trainrun_operator.cli.explaining.sweeps.as_json import as_json as sweep_as_json
from trainrun_operator.cli.explaining.sweeps.life import search_life_of
from trainrun_operator.cli.explaining.sweeps.text import lines as sweep_lines
from trainrun_operator.cli.explaining.text import lines
from trainrun_operator.cli.finding import find_runs
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.run_options import RunOptions
from trainrun_operator.cli.sources import Source, UnknownRun
from trainrun_operator.cli.sweeping.reading import ReadSweep, names_sweep, read_sweep
from trainrun_operator.core.sweep.trial import TRIALS


def explain(
    where: str,
    *,
    storage: str | None,
    namespace: str | None,
    generation: int | None,
    to_json: bool,
    html: Path | None,
) -> int:
    """Print the story of each run, or of the sweep, that `where` names; returns the exit code."""
    if names_sweep(where):
        if html is not None or generation is not None:
            option = "--html" if html is not None else "--generation"
            return _refuse_option(option, where, storage=storage)
        return _explain_sweep(where, storage=storage, to_json=to_json)
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


def _explain_sweep(where: str, *, storage: str | None, to_json: bool) -> int:
    try:
        sweep = read_sweep(where, storage=storage)
        life = search_life_of(sweep, go_on=_going_on(sweep, where, storage))
    except TrainRunError as error:
        return refused(error)
    if to_json:
        click.echo(json.dumps(sweep_as_json(life)))
    else:
        for line in sweep_lines(life):
            click.echo(line)
    return SUCCEEDED


def _going_on(sweep: ReadSweep, where: str, storage: str | None) -> str:
    if sweep.described is None:
        return "`trainrun run` of the sweep's file"
    return RunOptions(file=Path(where), storage=storage).command


def _refuse_option(option: str, where: str, *, storage: str | None) -> int:
    try:
        folder = read_sweep(where, storage=storage).uri
    except TrainRunError as error:
        return refused(error)
    return refused(
        InvalidSpec(
            f"{option} is for runs, and {where} is a sweep: name the folder of a trial, such as "
            f"{folder}/{TRIALS}/00000"
        )
    )


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
