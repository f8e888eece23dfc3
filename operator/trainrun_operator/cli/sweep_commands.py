"""`trainrun sweep` and its verbs: names, options, help texts.

Layer: cli. Only click is imported here; what a command does is imported when it is called.
"""
# ruff: noqa: PLC0415 - the late imports are the point of this module

from __future__ import annotations

import sys
from pathlib import Path

import click

from trainrun_operator.cli.ctrl_c import loaded

STORAGE = click.option("--storage", metavar="URI", help="Storage instead of the file's.")


@click.group()
def sweep() -> None:
    """Look at a TrainSweep: its trials, the best one, whether it can go on.

    Reads the sweep's storage alone, also where the machine or cluster that led it is gone: the
    sweep of a YAML file, or of a folder, <storage URI>/<sweep name>. With your own credentials.
    """


@sweep.command()
@click.argument("where", metavar="FILE|FOLDER|URI")
@STORAGE
@click.option("--json", "as_json", is_flag=True, help="One JSON object per trial.")
def trials(where: str, *, storage: str | None, as_json: bool) -> None:
    """Show every trial: its parameters, its value, and how it ended."""
    from trainrun_operator.cli.sweeping.showing import show_trials

    loaded()
    sys.exit(show_trials(where, storage=storage, as_json=as_json))


@sweep.command()
@click.argument("where", metavar="FILE|FOLDER|URI")
@STORAGE
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def best(where: str, *, storage: str | None, as_json: bool) -> None:
    """Show the best trial so far and its parameters; exit with 3 where there is none."""
    from trainrun_operator.cli.sweeping.showing import show_best

    loaded()
    sys.exit(show_best(where, storage=storage, as_json=as_json))


@sweep.command()
@click.argument("where", metavar="FILE|FOLDER|URI")
@STORAGE
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page. Default: <sweep name>.html in this folder.",
)
def plot(where: str, *, storage: str | None, output: Path | None) -> None:
    """Draw the sweep as one page of HTML: values, learning curves, parameters.

    The page needs no network and no scripts. It is written anew each time, also while the sweep
    runs.
    """
    from trainrun_operator.cli.sweeping.plot import plot as drawn

    loaded()
    sys.exit(drawn(where, storage=storage, output=output))


@sweep.command()
@click.argument("where", metavar="FILE|FOLDER|URI")
@STORAGE
@click.option(
    "--optuna",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A journal of Optuna, for optuna-dashboard and optuna.load_study.",
)
@click.option(
    "--csv",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="A table with a row for each trial; - writes it to stdout.",
)
def export(where: str, *, storage: str | None, optuna: Path | None, csv: Path | None) -> None:
    """Write the trials for other tools: --optuna or --csv, into a new file."""
    from trainrun_operator.cli.sweeping.export import export_csv, export_optuna

    loaded()
    if optuna is not None and csv is None:
        sys.exit(export_optuna(where, storage=storage, file=optuna))
    if csv is not None and optuna is None:
        sys.exit(export_csv(where, storage=storage, file=csv))
    raise click.UsageError("give exactly one of --optuna and --csv")


@sweep.command("can-restore")
@click.argument("where", metavar="FILE|FOLDER|URI")
@STORAGE
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Whether this file describes the same search.",
)
def can_restore(where: str, *, storage: str | None, file: Path | None) -> None:
    """Say whether the sweep can be taken up again: exit with 0 for yes, 3 for no.

    A file, in place of the folder or with -f, must describe the search that was begun there.
    """
    from trainrun_operator.cli.sweeping.showing import show_can_restore

    loaded()
    sys.exit(show_can_restore(where, storage=storage, file=file))
