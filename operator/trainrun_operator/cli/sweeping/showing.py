"""`trainrun sweep trials|best|can-restore`: what was tried, what was found, and can it go on?

Layer: cli. Reads the log alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from trainrun.errors import TrainRunError
from trainrun.sweep.results import best
from trainrun.sweep.search import Objective
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.cli import wording
from trainrun_operator.cli.exit_codes import NO, SUCCEEDED
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.report import terminal
from trainrun_operator.cli.sweeping.loading import load_sweep
from trainrun_operator.cli.sweeping.reading import ReadSweep, UnknownSweep, read_sweep
from trainrun_operator.cli.sweeping.rows import Row, row_of, rows_of
from trainrun_operator.cli.sweeping.texts import number, parameters, value_at
from trainrun_operator.core.sweep.config import changed_fields, immutable_part

LONGEST_REMARK = 100
"""Characters in a table; `--json` has all of it."""


def show_trials(
    where: str, *, storage: str | None, namespace: str | None, before_damage: bool, as_json: bool
) -> int:
    """A line for each trial; returns the exit code."""
    try:
        sweep = read_sweep(where, storage=storage, namespace=namespace, before_damage=before_damage)
    except TrainRunError as error:
        return refused(error)
    rows = rows_of(sweep.view, sweep.objective)
    if as_json:
        for row in rows:
            click.echo(json.dumps(row.data))
    else:
        for line in table(rows, sweep.objective):
            click.echo(line)
    return SUCCEEDED


def show_best(
    where: str, *, storage: str | None, namespace: str | None, before_damage: bool, as_json: bool
) -> int:
    """The trial that is ahead, and its parameters; returns the exit code."""
    try:
        sweep = read_sweep(where, storage=storage, namespace=namespace, before_damage=before_damage)
    except TrainRunError as error:
        return refused(error)
    found = best(sweep.view, sweep.objective)
    if found is None:
        click.echo(f"no trial in {sweep.uri} has a {sweep.objective.metric} yet", err=True)
        return NO
    row = row_of(found.trial, sweep.objective)
    if as_json:
        click.echo(json.dumps(row.data))
    else:
        told = value_at(sweep.objective, found.own.value, found.own.step)
        click.echo(f"trial {row.trial}: {told}")
        click.echo(f"  {parameters(row.params, exact=True)}")
    return SUCCEEDED


def show_can_restore(
    where: str, *, storage: str | None, namespace: str | None, file: Path | None
) -> int:
    """Say in one line whether a sweep can be taken up again; returns 0 for yes, 3 for no."""
    try:
        sweep = read_sweep(where, storage=storage, namespace=namespace)
        described = sweep.described if file is None else load_sweep(file)
        changed = [] if described is None else _changed(sweep, described)
    except UnknownSweep as error:
        click.echo(f"no: {error}")
        return NO
    except TrainRunError as error:
        return refused(error)
    if changed:
        click.echo(f"no: {sweep.uri} holds a search with another {', '.join(changed)}")
        return NO
    view = sweep.view
    counts = f"{view.asked} trials, {view.count('Open')} open, {view.count('Errored')} errored"
    click.echo(f"yes: {sweep.uri} holds {counts}")
    return SUCCEEDED


def _changed(sweep: ReadSweep, described: TrainSweep) -> list[str]:
    return changed_fields(sweep.view.sessions[0].spec, immutable_part(described.spec))


def table(rows: Iterable[Row], objective: Objective) -> Iterator[str]:
    """Heads and rows as text."""
    heads = ("trial", "state", objective.metric, "step", "restarts", "parameters")
    return terminal.table(heads, map(_cells, rows))


def _cells(row: Row) -> tuple[str, ...]:
    step = "-" if row.step is None else str(row.step)
    remark = f"  ({wording.shortened(row.remark, LONGEST_REMARK)})" if row.remark else ""
    said = parameters(row.params) + remark
    return str(row.trial), row.state, number(row.value), step, str(row.restarts), said
