"""The command line: names, options, help texts.

Layer: cli. Nothing but click is imported here; what a command does is imported when it is called.
Exit codes: 0 succeeded, 1 failed, 2 bad input, 130 interrupted.
"""
# ruff: noqa: PLC0415 - the late imports are the point of this module

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trainrun", prog_name="trainrun")
def trainrun() -> None:
    """Training runs that survive failures and preemptions."""


@trainrun.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replicas", type=int, metavar="N", help="Number of workers instead of the file's.")
@click.option("--storage", metavar="URI", help="Storage instead of the file's; a folder will do.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="FAULT",
    help='Do harm on purpose: "kill rank=2 step=30", "preempt rank=1 step=60 grace=20s", '
    '"node-loss rank=3 step=40". May be repeated.',
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, the status last.")
@click.option("--plain", is_flag=True, help="Plain lines also on a terminal.")
@click.option("--no-color", is_flag=True, help="No colors (also: NO_COLOR in the environment).")
@click.option("-v", "--verbose", is_flag=True, help="Tell also what is being waited for.")
def run(
    file: Path,
    *,
    replicas: int | None,
    storage: str | None,
    faults: tuple[str, ...],
    as_json: bool,
    plain: bool,
    no_color: bool,
    verbose: bool,
) -> None:
    """Run the TrainRun in FILE on this machine, or continue it.

    Workers are processes of this machine instead of pods; everything else is as in a cluster.
    Ctrl-C saves a checkpoint and stops, so that the same command continues; twice stops at once.
    """
    from trainrun_operator.cli.run import RunOptions, run_locally

    options = RunOptions(
        file=file,
        replicas=replicas,
        storage=storage,
        faults=faults,
        as_json=as_json,
        plain=plain,
        color=not no_color,
        verbose=verbose,
    )
    sys.exit(run_locally(options))


@trainrun.command()
@click.argument("where", metavar="FILE|URI")
@click.option("--storage", metavar="URI", help="Storage instead of the file's.")
@click.option("--json", "as_json", is_flag=True, help="The whole status as JSON.")
def status(where: str, *, storage: str | None, as_json: bool) -> None:
    """Show the run of a YAML file, or the runs in a storage URI, as this machine knows them."""
    from trainrun_operator.cli.status import show_status

    sys.exit(show_status(where, storage=storage, as_json=as_json))


@trainrun.command()
@click.argument("where", metavar="FILE|URI")
@click.option("--storage", metavar="URI", help="Storage instead of the file's.")
@click.option("--verify", is_flag=True, help="Read every file and compare its checksum.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def checkpoints(where: str, *, storage: str | None, verify: bool, as_json: bool) -> None:
    """List the checkpoints of the run of a YAML file, or of the run at <storage URI>/<run name>."""
    from trainrun_operator.cli.checkpoints import show_checkpoints

    sys.exit(show_checkpoints(where, storage=storage, verify=verify, as_json=as_json))
