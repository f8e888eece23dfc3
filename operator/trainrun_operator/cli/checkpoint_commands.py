"""`trainrun checkpoints` and its verbs: names, options, help texts.

Layer: cli. Only click is imported here; what a command does is imported when it is called.
"""
# ruff: noqa: PLC0415 - the late imports are the point of this module

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trainrun_operator.cli.ctrl_c import loaded

STORAGE = click.option("--storage", metavar="URI", help="Storage to use instead of the file's.")
NAMESPACE = click.option(
    "-n", "--namespace", help="Namespace of NAME, instead of the kubeconfig's."
)
GENERATION = click.option(
    "--generation",
    type=int,
    metavar="N",
    help="Generation of the run's folder (storage.onExisting: StartFresh). Default: the run's "
    "own, or the newest if no status names it.",
)


def placed(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the storage and the namespace to look in."""
    return STORAGE(NAMESPACE(command))


class ListUnlessNamed(click.Group):
    """A group whose default verb is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `list` if no verb is given."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=ListUnlessNamed)
def checkpoints() -> None:
    """Look at the checkpoints of a run, fetch one, or set one aside.

    `trainrun checkpoints NAME|FILE|URI` is `trainrun checkpoints list NAME|FILE|URI`. NAME (or
    NAMESPACE/NAME) is a TrainRun in the cluster of your kubeconfig; its storage is read with your
    own credentials.
    """


SCORE = click.option(
    "--score",
    metavar="NAME:Max|Min",
    help="Metric by which the best is chosen, and its order, instead of the file's.",
)


@checkpoints.command("list")
@click.argument("where", metavar="NAME|FILE|URI")
@placed
@click.option("--verify", is_flag=True, help="Read every file and compare its checksum.")
@GENERATION
@click.option("--all-generations", is_flag=True, help="All generations, oldest first.")
@SCORE
@click.option(
    "--can-resume",
    is_flag=True,
    help="Instead of the list, print whether a run would resume; exit with 0 for yes, 3 for no, "
    "1 if that is not known.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def list_(
    where: str,
    *,
    verify: bool,
    generation: int | None,
    all_generations: bool,
    score: str | None,
    can_resume: bool,
    **options: Any,
) -> None:
    """List the checkpoints of a TrainRun in the cluster, of the run of a YAML file, or of the run
    at <storage URI>/<run name>.
    """
    from trainrun_operator.cli.checkpoints import Which, show_checkpoints, show_prospect

    loaded()
    if can_resume and verify:
        raise click.UsageError("--can-resume reads no files; use --verify without it")
    if all_generations and (can_resume or generation is not None):
        raise click.UsageError(
            "--all-generations cannot be combined with --generation or --can-resume"
        )
    if can_resume:
        sys.exit(show_prospect(where, generation=generation, **options))
    which: Which = "all" if all_generations else generation
    sys.exit(show_checkpoints(where, which=which, verify=verify, score=score, **options))


@checkpoints.command()
@click.argument("where", metavar="NAME|FILE|URI")
@click.argument("steps", metavar="[STEP]", nargs=-1)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@placed
@GENERATION
@SCORE
def get(*, steps: tuple[str, ...], **options: Any) -> None:
    """Fetch the files of a checkpoint into the new folder DIR, and verify each.

    STEP is a step, or a name such as step-000001200-attempt-3; the default is the newest good
    checkpoint. `best` instead of a step: the good one with the best value of
    checkpoint.scoreMetric.
    """
    from trainrun_operator.cli.checkpoint_files import get_checkpoint

    if len(steps) > 1:
        raise click.UsageError("give NAME|FILE|URI, at most one STEP, and DIR")
    get_checkpoint(step=steps[0] if steps else None, **options)


@checkpoints.command("set-aside")
@click.argument("where", metavar="NAME|FILE|URI")
@click.argument("step", metavar="STEP")
@placed
@GENERATION
@click.option("--reason", default="set aside by hand", metavar="TEXT", help="Why, for the record.")
def set_aside(**options: Any) -> None:
    """Exclude the checkpoint of STEP from resumes, because it is damaged or spoils the training.

    A running attempt continues; the next one resumes from the newest good checkpoint that is left.
    """
    from trainrun_operator.cli.checkpoint_files import set_checkpoint_aside

    set_checkpoint_aside(**options)
