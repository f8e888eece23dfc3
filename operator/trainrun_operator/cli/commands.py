"""The command line: names, options, help texts.

Layer: cli. Only click is imported here; each command imports its own module when it is called.
Exit codes: 0 succeeded, 1 failed, 2 bad input, 3 a fault never struck, `no` or not rehearsed,
4 something was found, 130 interrupted.
"""
# ruff: noqa: PLC0415 - the late imports are the point of this module

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trainrun import __version__
from trainrun.errors import StoreError, TrainRunError
from trainrun_operator.cli.checkpoint_commands import GENERATION, checkpoints, placed
from trainrun_operator.cli.ctrl_c import loaded
from trainrun_operator.cli.exit_codes import BAD_INPUT, FAILED, INTERRUPTED
from trainrun_operator.cli.setup_commands import SETUP
from trainrun_operator.cli.sweep_commands import sweep
from trainrun_operator.cli.task_commands import tasks


class Commands(click.Group):
    """Prints errors as `error: ...`: exit code 1 for a store that fails, 2 for bad input. Ctrl-C
    exits with 130 and prints nothing."""

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
@click.version_option(__version__, prog_name="trainrun")
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
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line, the status last."
)
@click.option("--plain", is_flag=True, help="Print plain lines, even on a terminal.")
@click.option("--no-color", is_flag=True, help="Use no colors (also: NO_COLOR in the environment).")
@click.option("-v", "--verbose", is_flag=True, help="Also show what the run waits for.")
@click.option("--page", is_flag=True, help="Serve a page about the run while it is led.")
def run(*, no_color: bool, **options: Any) -> None:
    """Run the TrainRun or TrainSweep in FILE on this machine, or continue it.

    Workers are processes on this machine instead of pods; everything else works as in a cluster.
    Ctrl-C saves a checkpoint and stops; the same command continues from it. Ctrl-C twice stops at
    once.
    """
    from trainrun_operator.cli.leading import RunOptions
    from trainrun_operator.cli.run import run_locally

    loaded()
    sys.exit(run_locally(RunOptions(color=not no_color, **options)))


@trainrun.command()
@click.argument("where", metavar="NAME|FILE|URI")
@placed
@click.option("--json", "as_json", is_flag=True, help="Print the whole status as JSON.")
def status(where: str, *, storage: str | None, namespace: str | None, as_json: bool) -> None:
    """Show the run of a YAML file, or the runs in a storage URI, as this machine knows them.

    NAME (or NAMESPACE/NAME) is a TrainRun in the cluster of your kubeconfig. For a TrainSweep use
    `trainrun sweep status`.
    """
    from trainrun_operator.cli.status import show_status

    loaded()
    show_status(where, storage=storage, namespace=namespace, as_json=as_json)


@trainrun.command()
@click.argument("where", metavar="NAME|FILE|FOLDER|URI")
@placed
@GENERATION
@click.option("--json", "to_json", is_flag=True, help="Print one JSON object per run.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write one self-contained page instead of printing.",
)
def explain(where: str, **options: Any) -> None:
    """Explain what happened in a run: attempts, incidents, what they cost, and what to change.

    If the cluster or the TrainRun was deleted, give the run's folder or <storage URI>/<run name>:
    the storage alone is enough. NAME (or NAMESPACE/NAME) is a TrainRun or a TrainSweep in the
    cluster of your kubeconfig; if both exist, the TrainRun. The storage is read with your own
    credentials.

    For the name, file or folder of a TrainSweep it explains the search: what it cost, which trials
    failed and why, the best one, and what to do next.
    """
    from trainrun_operator.cli.explain import ExplainOptions
    from trainrun_operator.cli.explain import explain as explain_runs

    loaded()
    explain_runs(ExplainOptions(where=where, **options))


@trainrun.command()
@click.argument("places", metavar="[URI|FOLDER]...", nargs=-1)
@click.option("-n", "--namespace", help="Namespace of the cluster, instead of the kubeconfig's.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1. Default: any."
)
def page(**options: Any) -> None:
    """Serve a page about many runs on 127.0.0.1: how they stand, and what became of them.

    It shows the TrainRuns in the cluster of your kubeconfig, and every run in the storages given as
    URI or FOLDER, also those whose cluster or TrainRun is gone. It reads with your own credentials,
    and writes nothing. Open the address that it prints; Ctrl-C ends it.
    """
    from trainrun_operator.cli.page import PageOptions
    from trainrun_operator.cli.page import page as serve_page

    serve_page(PageOptions(**options))


@trainrun.command()
@click.argument("where", metavar="NAME|FILE|FOLDER|URI")
@placed
@GENERATION
@click.option("-f", "--follow", is_flag=True, help="Follow the run through restarts until it ends.")
@click.option(
    "--rank",
    "ranks",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="R",
    help="Show only this rank. May be repeated.",
)
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="Show only this attempt.")
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show only the last N lines of each rank in each attempt; with -f, of the existing lines.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def logs(*, ranks: tuple[int, ...], attempt: int | None, tail: int | None, **options: Any) -> None:
    """Show what the processes of a run printed, each line with its attempt and rank.

    Ended attempts are read from the run's storage, also after the cluster or the TrainRun was
    deleted: the last 2000 lines of each process, 200 after the run succeeded. Missing lines are
    reported, such as those of a worker lost with its node. What looks like a secret is left out.
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
    help="Stop each run at this step. Default: at the third checkpoint, or the fifth for a script "
    "that reports only where it saves; earlier if that takes more than a share of the time.",
)
@click.option(
    "--within",
    metavar="TIME",
    help="Time limit for the whole drill, such as 90s or 20m. Default: 5m, with --cluster 15m.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also inject faults that test TrainRun itself: a damaged checkpoint, an unreachable "
    "store, a second failure, a lost node, a hang.",
)
@click.option(
    "--cluster",
    is_flag=True,
    help="Run the drill in the cluster of your kubeconfig, as TrainRuns of its own that it removes "
    "afterwards: workers are deleted, at once and with notice.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write one static page with the curves drawn over each other.",
)
def drill(**options: Any) -> None:
    """Rehearse how the TrainRun in FILE recovers when something breaks.

    Compares two undisturbed runs on this machine with runs in which something breaks: a rank is
    killed after a checkpoint, while it saves, before the first checkpoint, in mid-epoch and at the
    end, and a worker gets a notice. All runs use temporary storage, another name, and offline
    trackers. Exit codes: 0 all is well, 4 something was found, 3 nothing was found but not
    everything was rehearsed, 1 the script fails without any fault.
    """
    from trainrun_operator.cli.drill import DrillOptions
    from trainrun_operator.cli.drill import drill as hold_drill

    loaded()
    sys.exit(hold_drill(DrillOptions(**options)))


@trainrun.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--storage", metavar="URI", help="Where to store the run's checkpoints.")
def convert(file: Path, *, storage: str | None) -> None:
    """Write the TrainRun for the PyTorchJob, TrainJob or JobSet in FILE.

    Prints the YAML to stdout. Prints to stderr, a line each, what it left out and what it added
    that the job does not say. Exits with 1 if you must edit the YAML before it can run.
    """
    from trainrun_operator.cli.convert import convert as convert_file

    loaded()
    sys.exit(convert_file(file, storage=storage))


trainrun.add_command(checkpoints)
trainrun.add_command(sweep)
trainrun.add_command(tasks)
for command in SETUP:
    trainrun.add_command(command)
