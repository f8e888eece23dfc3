"""`trainrun sweep` and its verbs: names, options, help texts.

Layer: cli. Only click is imported here; what a command does is imported when it is called.
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
    help="Of a log with a record that is missing or damaged: what stands before it.",
)
CHANGE_AS_JSON = click.option(
    "--json", "as_json", is_flag=True, help="What was changed as one JSON object."
)


def of_log(command: Callable[..., None]) -> Callable[..., None]:
    """A command that is given where the log of a sweep is, and reads it."""
    return WHERE(placed(BEFORE_DAMAGE(command)))


def steered(command: Callable[..., None]) -> Callable[..., None]:
    """A command that changes the sweep of this name."""
    return STEERED(NAMESPACE(CHANGE_AS_JSON(command)))


def _read(where: str, **place: Any) -> ReadSweep:
    from trainrun_operator.cli.sweeping.stored_sweep import read_sweep

    loaded()
    return read_sweep(where, **place)


@click.group()
def sweep() -> None:
    """Look at a TrainSweep, and pause, stop or resume its trials.

    What it has come to is read from its storage, also where the machine or cluster that led it is
    gone: the sweep of a YAML file, or of a folder, <storage URI>/<sweep name>. NAME (or
    NAMESPACE/NAME) is a TrainSweep in the cluster of your kubeconfig. With your own credentials.
    What it is to do stands in its YAML file, or in the TrainSweep of the cluster, which a sweep
    that runs follows.
    """


@sweep.command()
@WHERE
@placed
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(where: str, *, storage: str | None, namespace: str | None, as_json: bool) -> None:
    """Show how the sweep fares: trials by state, the best one, the last that ended."""
    from trainrun_operator.cli.sweeping.views import show_status

    loaded()
    show_status(where, storage=storage, namespace=namespace, as_json=as_json)


@sweep.command()
@of_log
@click.option("--json", "as_json", is_flag=True, help="One JSON object per trial.")
def trials(where: str, *, as_json: bool, **place: Any) -> None:
    """Show every trial: its parameters, its value, and how it ended."""
    from trainrun_operator.cli.sweeping.views import show_trials

    show_trials(_read(where, **place), as_json=as_json)


@sweep.command()
@of_log
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def best(where: str, *, as_json: bool, **place: Any) -> None:
    """Show the best trial so far and its parameters; exit with 3 where there is none."""
    from trainrun_operator.cli.sweeping.views import show_best

    sys.exit(show_best(_read(where, **place), as_json=as_json))


@sweep.command()
@of_log
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The page. Default: <sweep name>.html in this folder.",
)
def plot(where: str, *, output: Path | None, **place: Any) -> None:
    """Draw the sweep as one page of HTML: values, learning curves, parameters.

    By Optuna and plotly: pip install "trainrun[plot]". The page needs no network. It is written
    anew each time, also while the sweep runs.
    """
    from trainrun_operator.cli.sweeping.export import plot as draw

    draw(_read(where, **place), output=output)


@sweep.command()
@of_log
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
def export(where: str, *, optuna: Path | None, csv: Path | None, **place: Any) -> None:
    """Write the trials for other tools: --optuna or --csv, into a new file."""
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
    """Go on without a damaged record of the log that only held points of curves.

    RECORD is the number of the object that the message names. What is left of it is kept beside it.
    Values that stood in it are lost to curves and early stopping, unless their trials report them
    again; trials, parameters and ends are not touched.
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
    help="Whether this file describes the same search.",
)
def can_restore(where: str, **options: Any) -> None:
    """Say whether the sweep can be taken up again: exit with 0 for yes, 3 for no.

    A file, in place of the folder or with -f, must describe the search that was begun there, and so
    must the TrainSweep NAME.
    """
    from trainrun_operator.cli.sweeping.views import show_can_restore

    loaded()
    sys.exit(show_can_restore(where, **options))


@sweep.command()
@steered
@TRIALS
def pause(where: str, **options: Any) -> None:
    """Save trials and let them wait; without a number: the whole sweep.

    Changes pausedTrials, or suspend, in the TrainSweep of the cluster. A sweep that runs takes it
    up within two seconds, and starts other trials in the place of these. A sweep's file is yours to
    change: given a file, the command says what to write there and exits with 2.
    """
    from trainrun_operator.cli.sweeping.pause_resume import paused, steer

    loaded()
    steer(paused, where, **options)


@sweep.command()
@steered
@click.argument("trials", metavar="TRIAL...", type=click.IntRange(min=0), nargs=-1, required=True)
def stop(where: str, **options: Any) -> None:
    """End trials for good; they keep the value that they have.

    Changes stoppedTrials in the TrainSweep of the cluster. A sweep that runs takes it up within two
    seconds. Given a sweep's file, the command says what to write there and exits with 2.
    """
    from trainrun_operator.cli.sweeping.pause_resume import steer, stopped

    loaded()
    steer(stopped, where, **options)


@sweep.command()
@steered
@TRIALS
def resume(where: str, **options: Any) -> None:
    """Let paused trials go on from what they have saved; without a number: the whole sweep.

    Changes pausedTrials, and suspend, in the TrainSweep of the cluster. A sweep that runs takes it
    up within two seconds. Given a sweep's file, the command says what to write there and exits
    with 2.
    """
    from trainrun_operator.cli.sweeping.pause_resume import resumed, steer

    loaded()
    steer(resumed, where, **options)
