"""The command line: names, options, help texts.

Layer: cli. Only click is imported here; what a command does is imported when it is called.
Exit codes: 0 succeeded, 1 failed, 2 bad input, 3 a fault never struck, `no` or not rehearsed,
4 something was found, 130 interrupted.
"""
# ruff: noqa: PLC0415 - the late imports are the point of this module

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trainrun.errors import StoreError, TrainRunError
from trainrun_operator.cli.checkpoint_commands import GENERATION, checkpoints, placed
from trainrun_operator.cli.ctrl_c import loaded
from trainrun_operator.cli.exit_codes import BAD_INPUT, FAILED, INTERRUPTED
from trainrun_operator.cli.sweep_commands import sweep
from trainrun_operator.cli.task_commands import tasks


class Commands(click.Group):
    """Commands that Ctrl-C ends with 130 and no words, and that say why they cannot do what they
    were asked for: a store that fails is no mistake in what was asked for."""

    def invoke(self, ctx: click.Context) -> object:
        """Call the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except TrainRunError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(FAILED if isinstance(error, StoreError) else BAD_INPUT)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trainrun", prog_name="trainrun")
def trainrun() -> None:
    """Training runs that survive failures and preemptions."""


@trainrun.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replicas", type=int, metavar="N", help="Number of workers instead of the file's.")
@click.option("--storage", metavar="URI", help="Storage instead of the file's: a URI or a folder.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="FAULT",
    help='Inject a fault: "kill rank=2 step=30", "preempt rank=1 step=60 grace=20s", '
    '"node-loss rank=3 step=40", "hang rank=0 after=30s". May be repeated.',
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, the status last.")
@click.option("--plain", is_flag=True, help="Plain lines, even on a terminal.")
@click.option("--no-color", is_flag=True, help="No colors (also: NO_COLOR in the environment).")
@click.option("-v", "--verbose", is_flag=True, help="Also show what the run waits for.")
def run(*, no_color: bool, **options: Any) -> None:
    """Run the TrainRun or TrainSweep in FILE on this machine, or continue it.

    Workers are processes of this machine instead of pods; everything else is as in a cluster.
    Ctrl-C saves a checkpoint and stops, so that the same command continues; twice stops at once.
    """
    from trainrun_operator.cli.leading import RunOptions
    from trainrun_operator.cli.run import run_locally

    loaded()
    sys.exit(run_locally(RunOptions(color=not no_color, **options)))


@trainrun.command()
@click.argument("where", metavar="NAME|FILE|URI")
@placed
@click.option("--json", "as_json", is_flag=True, help="The whole status as JSON.")
def status(where: str, *, storage: str | None, namespace: str | None, as_json: bool) -> None:
    """Show the run of a YAML file, or the runs in a storage URI, as this machine knows them.

    NAME (or NAMESPACE/NAME) is a TrainRun in the cluster of your kubeconfig. Of a TrainSweep it is
    `trainrun sweep status`.
    """
    from trainrun_operator.cli.status import show_status

    loaded()
    show_status(where, storage=storage, namespace=namespace, as_json=as_json)


@trainrun.command()
@click.argument("where", metavar="NAME|FILE|FOLDER|URI")
@placed
@GENERATION
@click.option("--json", "to_json", is_flag=True, help="One JSON object per run.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it as one page that needs nothing else, instead of printing it.",
)
def explain(where: str, **options: Any) -> None:
    """Tell what became of a run: attempts, incidents, what they cost, and what to change.

    Reads the run's storage alone where the cluster is gone or the TrainRun deleted: its folder, or
    <storage URI>/<run name>. NAME (or NAMESPACE/NAME) is a TrainRun or a TrainSweep in the cluster
    of your kubeconfig; where both have it, the TrainRun. The storage is read with your own
    credentials.

    Of a TrainSweep, its name, its file or its folder, it tells the search: what it cost, which
    trials failed and why, the best one, and what to do next.
    """
    from trainrun_operator.cli.explain import ExplainOptions
    from trainrun_operator.cli.explain import explain as explain_runs

    loaded()
    explain_runs(ExplainOptions(where=where, **options))


@trainrun.command()
@click.argument("where", metavar="NAME|FILE|FOLDER|URI")
@placed
@GENERATION
@click.option("-f", "--follow", is_flag=True, help="Go on, through restarts, until the run ends.")
@click.option(
    "--rank",
    "ranks",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="R",
    help="Only this rank. May be repeated.",
)
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Only this attempt.")
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only the last N lines of each rank in each attempt; with -f, of those that are there.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def logs(*, ranks: tuple[int, ...], attempt: int | None, tail: int | None, **options: Any) -> None:
    """Show what the processes of a run have printed, with attempt and rank in front.

    Attempts that are over are read from the run's storage, so the cluster may be gone or the
    TrainRun deleted: the last 2000 lines of each process, 200 where the run has succeeded. What is
    missing, as of a worker that was lost with its node, is named. What looks like a secret is left
    out.
    """
    from trainrun_operator.cli.log_lines.line import Wanted
    from trainrun_operator.cli.logs import logs as show_logs

    loaded()
    wanted = Wanted(ranks=frozenset(ranks), attempt=attempt, tail=tail)
    show_logs(wanted=wanted, **options)


@trainrun.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replicas", type=int, metavar="N", help="Number of workers instead of the file's.")
@click.option(
    "--until-step",
    "until",
    type=click.IntRange(min=1),
    metavar="N",
    help="How far each run goes. Default: to the third checkpoint, or the fifth of a script that "
    "reports only where it saves, or to fewer where that takes more than a share of the time.",
)
@click.option(
    "--within",
    metavar="TIME",
    help="How long all of it may take, such as 90s or 20m. Default: 5m, with --cluster 15m.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also what tests TrainRun: damage, a store that is away, a second failure, a lost node, a "
    "hang.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="As TrainRuns of their own in the cluster of your kubeconfig, which are removed again: "
    "workers are deleted, at once and with notice.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also one static page with the curves over each other.",
)
def drill(**options: Any) -> None:
    """Rehearse what becomes of the TrainRun in FILE when something breaks.

    Two undisturbed runs on this machine are compared with others in which something breaks: a rank
    is killed after a checkpoint, while it saves, before the first checkpoint, in mid-epoch and at
    the end, and a worker gets a notice. All in temporary storage, under another name, trackers
    offline. Exit code: 0 all is well, 4 something was found, 3 nothing was found but not everything
    was rehearsed, 1 the script fails without any fault.
    """
    from trainrun_operator.cli.drill import DrillOptions
    from trainrun_operator.cli.drill import drill as hold_drill

    loaded()
    sys.exit(hold_drill(DrillOptions(**options)))


@trainrun.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--storage", metavar="URI", help="Where the run's checkpoints go.")
def convert(file: Path, *, storage: str | None) -> None:
    """Write the TrainRun for the PyTorchJob, TrainJob or JobSet in FILE.

    The YAML goes to stdout. What could not be carried over, and what was written that the job does
    not say, goes to stderr, a line each. The exit code is 1 where it has to be changed to run.
    """
    from trainrun_operator.cli.convert import convert as convert_file

    loaded()
    sys.exit(convert_file(file, storage=storage))


trainrun.add_command(checkpoints)
trainrun.add_command(sweep)
trainrun.add_command(tasks)
