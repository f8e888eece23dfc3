"""`trainrun sweep` and its verbs: names, options, help texts.

Layer: cli. Only click is imported here; what a command does is imported when it is called.
"""
# ruff: noqa: PLC0415 - the late imports are the point of this module

from __future__ import annotations

import sys
from pathlib import Path

import click

from trainrun_operator.cli.ctrl_c import loaded

SWEEP_FILE = click.argument(
    "file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
TRIALS = click.argument("trials", metavar="[TRIAL]...", type=click.IntRange(min=0), nargs=-1)
STORAGE = click.option("--storage", metavar="URI", help="Storage instead of the file's.")


@click.group()
def sweep() -> None:
    """Look at a TrainSweep, and pause, stop or resume its trials.

    What it has come to is read from its storage alone, also where the machine or cluster that led
    it is gone: the sweep of a YAML file, or of a folder, <storage URI>/<sweep name>. With your own
    credentials. What it is to do stands in its YAML file, which a sweep that runs follows.
    """


@sweep.command()
@click.argument("where", metavar="FILE|FOLDER|URI")
@STORAGE
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(where: str, *, storage: str | None, as_json: bool) -> None:
    """Show how the sweep fares: trials by state, the best one, the last that ended."""
    from trainrun_operator.cli.sweeping.status import show_status

    loaded()
    sys.exit(show_status(where, storage=storage, as_json=as_json))


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


@sweep.command()
@SWEEP_FILE
@TRIALS
@STORAGE
def pause(file: Path, trials: tuple[int, ...], *, storage: str | None) -> None:
    """Save trials and let them wait; without a number: the whole sweep.

    Changes pausedTrials, or suspend, in the sweep's file and nothing else there. A sweep that runs
    takes it up within two seconds, and starts other trials in the place of these.
    """
    from trainrun_operator.cli.sweeping.steering import pause_trials

    loaded()
    sys.exit(pause_trials(file, trials, storage=storage))


@sweep.command()
@SWEEP_FILE
@click.argument("trials", metavar="TRIAL...", type=click.IntRange(min=0), nargs=-1, required=True)
@STORAGE
def stop(file: Path, trials: tuple[int, ...], *, storage: str | None) -> None:
    """End trials for good; they keep the value that they have.

    Changes stoppedTrials in the sweep's file, and nothing else there. A sweep that runs takes it up
    within two seconds.
    """
    from trainrun_operator.cli.sweeping.steering import stop_trials

    loaded()
    sys.exit(stop_trials(file, trials, storage=storage))


@sweep.command()
@SWEEP_FILE
@TRIALS
@STORAGE
def resume(file: Path, trials: tuple[int, ...], *, storage: str | None) -> None:
    """Let paused trials go on from what they have saved; without a number: the whole sweep.

    Changes pausedTrials, and suspend, in the sweep's file and nothing else there. A sweep that runs
    takes it up within two seconds; `trainrun run` goes on with one that does not.
    """
    from trainrun_operator.cli.sweeping.steering import resume_trials

    loaded()
    sys.exit(resume_trials(file, trials, storage=storage))
