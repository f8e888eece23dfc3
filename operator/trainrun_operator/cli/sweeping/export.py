"""`trainrun sweep export|plot`: write a sweep's trials for other tools, or as one HTML page.

Layer: cli. Reads only the log. Overwrites an existing page, but never another file.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click

from trainrun.errors import InvalidSpec
from trainrun_operator.cli import formatting
from trainrun_operator.cli.report.output import write_page
from trainrun_operator.cli.sweeping.stored_sweep import ReadSweep
from trainrun_operator.cli.sweeping.trial_text import trial_rows
from trainrun_operator.core.sweep.config import as_text
from trainrun_operator.runtime.clerk_work import without_optuna

STDOUT = Path("-")
OWN = ("number", "state", "reason", "value", "step", "restarts")
"""Columns before those of the parameters."""


def export_optuna(sweep: ReadSweep, file: Path) -> None:
    """Write an Optuna journal. Raises InvalidSpec."""
    try:
        from trainrun._samplers.optuna_study import write_journal  # noqa: PLC0415 - a second or two
    except ImportError as error:
        raise InvalidSpec(without_optuna("--optuna", error)) from error
    with _writing("--optuna", file):
        write_journal(file, sweep.view, sweep.objective, sweep.space, name=sweep.folder.run_name)
    click.echo(
        f"{file}: study {sweep.folder.run_name} with "
        f"{formatting.counted(sweep.view.asked, 'trial')}"
    )


def export_csv(sweep: ReadSweep, file: Path) -> None:
    """Write a table, to stdout for `-`. Raises InvalidSpec."""
    if file == STDOUT:
        _write_table(sweep, sys.stdout)
        return
    with _writing("--csv", file), file.open("x", encoding="utf-8", newline="") as stream:
        _write_table(sweep, stream)
    click.echo(f"{file}: {formatting.counted(sweep.view.asked, 'trial')}")


@contextmanager
def _writing(option: str, file: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise InvalidSpec(
            f"{option} {file}: the file exists; choose another name, or remove it"
        ) from error
    except OSError as error:
        raise InvalidSpec(f"{option} {file}: cannot be written: {error.strerror}") from error


def _write_table(sweep: ReadSweep, stream: TextIO) -> None:
    """A row for each trial; the value as in `sweep trials`, empty if there is none. Floats are
    exact."""
    searched = [parameter.name for parameter in sweep.space]
    fixed = [name for trial in sweep.view.trials.values() for name in trial.params]
    names = list(dict.fromkeys([*searched, *fixed]))
    table = csv.writer(stream, lineterminator="\n")
    table.writerow([*OWN, *(_column(name) for name in names)])
    for row in trial_rows(sweep.view, sweep.objective):
        reason = sweep.view.trials[row.trial].reason
        own = (row.trial, row.state, reason, row.value, row.step, row.restarts)
        params = (as_text(row.params[name]) if name in row.params else "" for name in names)
        table.writerow([*own, *params])


def _column(name: str) -> str:
    """A parameter's column: its name, with a prefix if another column has that name."""
    return f"params.{name}" if name in OWN else name


def plot(sweep: ReadSweep, *, output: Path | None) -> None:
    """Write the page, by default `<sweep name>.html` here. Raises InvalidSpec."""
    try:
        from trainrun_operator.cli.sweeping.plot_page import page  # noqa: PLC0415 - a second or two
    except ImportError as error:
        raise InvalidSpec(
            f"sweep plot needs Optuna and plotly, which cannot be imported ({error}): "
            'pip install "trainrun[plot]"'
        ) from error
    file = Path(f"{sweep.folder.run_name}.html") if output is None else output
    write_page(page(sweep), file, option="--output")
    click.echo(str(file))
