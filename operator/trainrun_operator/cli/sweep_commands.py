"""`trainrun sweep` and its verbs: names, options, help texts.

Layer: cli. Only click is imported here; each command imports its own module when it is called.
"""
# ruff: noqa: PLC0415 - the late imports are the point of this module

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainrun_operator.cli.checkpoint_commands import NAMESPACE, placed
from trainrun_operator.cli.ctrl_c import loaded

if TYPE_CHECKING:
    from trainrun_operator.cli.sweeping.stored_sweep import ReadSweep

WHERE = click.argument("where", metavar="NAME|FILE|FOLDER|URI")
STEERED = click.argument("where", metavar="NAME")
TRIALS = click.argument("trials", metavar="[TRIAL]...", type=click.IntRange(min=0), nargs=-1)
BEFORE_DAMAGE = click.option(
    "--before-damage",
    is_flag=True,
    help="If a record of the log is missing or damaged, read only the records before it.",
)
CHANGE_AS_JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print what was changed as one JSON object."
)


def of_log(command: Callable[..., None]) -> Callable[..., None]:
    """A command that reads the log of a sweep."""
    return WHERE(placed(BEFORE_DAMAGE(command)))


def steered(command: Callable[..., None]) -> Callable[..., None]:
    """A command that changes a sweep in the cluster."""
    return STEERED(NAMESPACE(CHANGE_AS_JSON(command)))


def _read(where: str, **place: Any) -> ReadSweep:
    from trainrun_operator.cli.sweeping.stored_sweep import read_sweep

    loaded()
    return read_sweep(where, **place)


@click.group()
def sweep() -> None:
    """Show a TrainSweep, and pause, stop or resume its trials.

    Results are read from the sweep's storage with your own credentials, also after the machine or
    cluster that led it was deleted: give the sweep's YAML file, or its folder <storage URI>/<sweep
    name>. NAME (or NAMESPACE/NAME) is a TrainSweep in the cluster of your kubeconfig. To change
    what a sweep does, edit its YAML file or its TrainSweep: a running sweep follows it.
    """


@sweep.command()
@WHERE
@placed
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(where: str, *, storage: str | None, namespace: str | None, as_json: bool) -> None:
    """Show the sweep's progress: trials by state, the best one, the last that ended."""
    from trainrun_operator.cli.sweeping.views import show_status

    loaded()
    show_status(where, storage=storage, namespace=namespace, as_json=as_json)


@sweep.command()
@of_log
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per trial.")
def trials(where: str, *, as_json: bool, **place: Any) -> None:
    """Show every trial: its parameters, its value, and how it ended."""
    from trainrun_operator.cli.sweeping.views import show_trials

    show_trials(_read(where, **place), as_json=as_json)


@sweep.command()
@of_log
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def best(where: str, *, as_json: bool, **place: Any) -> None:
    """Show the best trial so far and its parameters; exit with 3 if there is none."""
    from trainrun_operator.cli.sweeping.views import show_best

    sys.exit(show_best(_read(where, **place), as_json=as_json))


@sweep.command()
@of_log
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the page. Default: <sweep name>.html in this folder.",
)
def plot(where: str, *, output: Path | None, **place: Any) -> None:
    """Draw the sweep as one HTML page: values, learning curves, parameters.

    Needs Optuna and plotly: pip install "trainrun[plot]". The page needs no network. Each call
    overwrites it; the sweep may still be running.
    """
    from trainrun_operator.cli.sweeping.export import plot as draw

    draw(_read(where, **place), output=output)


@sweep.command()
@of_log
@click.option(
    "--optuna",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write an Optuna journal, for optuna-dashboard and optuna.load_study.",
)
@click.option(
    "--csv",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Write a table with a row for each trial; - is stdout.",
)
def export(where: str, *, optuna: Path | None, csv: Path | None, **place: Any) -> None:
    """Write the trials for other tools into a new file: --optuna or --csv."""
    from trainrun_operator.cli.sweeping.export import export_csv, export_optuna

    if optuna is not None and csv is None:
        export_optuna(_read(where, **place), optuna)
    elif csv is not None and optuna is None:
        export_csv(_read(where, **place), csv)
    else:
        raise click.UsageError("give exactly one of --optuna and --csv")


@sweep.command("leave-out")
@WHERE
@click.argument("record", type=click.IntRange(min=1))
@placed
def leave_out(where: str, record: int, **options: Any) -> None:
    """Skip a damaged record of the log that held only points of curves.

    RECORD is the number in the error message. The damaged object is kept under another name. Its
    values are missing in curves and early stopping unless their trials report them again; trials,
    parameters and results do not change.
    """
    from trainrun_operator.cli.sweeping.views import leave_record_out

    loaded()
    sys.exit(leave_record_out(where, record, **options))


@sweep.command("can-restore")
@WHERE
@placed
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Also check that this file describes the same search.",
)
def can_restore(where: str, **options: Any) -> None:
    """Check whether the sweep can be continued: exit with 0 for yes, 3 for no.

    The file (given as FILE or with -f) or the TrainSweep NAME must describe the same search as the
    log.
    """
    from trainrun_operator.cli.sweeping.views import show_can_restore

    loaded()
    sys.exit(show_can_restore(where, **options))


@sweep.command()
@steered
@TRIALS
def pause(where: str, **options: Any) -> None:
    """Save trials and pause them; without a number: the whole sweep.

    Changes pausedTrials, or suspend, in the TrainSweep of the cluster. A running sweep applies it
    within two seconds and starts other trials instead. A file is not changed: the command prints
    what to write into it and exits with 2.
    """
    from trainrun_operator.cli.sweeping.pause_resume import paused, steer

    loaded()
    steer(paused, where, **options)


@sweep.command()
@steered
@click.argument("trials", metavar="TRIAL...", type=click.IntRange(min=0), nargs=-1, required=True)
def stop(where: str, **options: Any) -> None:
    """End trials for good; they keep their last value.

    Changes stoppedTrials in the TrainSweep of the cluster. A running sweep applies it within two
    seconds. A file is not changed: the command prints what to write into it and exits with 2.
    """
    from trainrun_operator.cli.sweeping.pause_resume import steer, stopped

    loaded()
    steer(stopped, where, **options)


@sweep.command()
@steered
@TRIALS
def resume(where: str, **options: Any) -> None:
    """Resume paused trials from their checkpoints; without a number: the whole sweep.

    Changes pausedTrials, and suspend, in the TrainSweep of the cluster. A running sweep applies it
    within two seconds. A file is not changed: the command prints what to write into it and exits
    with 2.
    """
    from trainrun_operator.cli.sweeping.pause_resume import resumed, steer

    loaded()
    steer(resumed, where, **options)
