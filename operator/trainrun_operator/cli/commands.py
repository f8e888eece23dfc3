"""The command line: names, options, help texts.

Layer: cli. Only click is imported here; what a command does is imported when it is called.
Exit codes: 0 succeeded, 1 failed, 2 bad input, 3 a fault never struck, `no` or not rehearsed,
4 something was found, 130 interrupted.
"""
# ruff: noqa: PLC0415 - the late imports are the point of this module

from __future__ import annotations

import sys
from pathlib import Path

import click

from trainrun_operator.cli.ctrl_c import loaded
from trainrun_operator.cli.exit_codes import INTERRUPTED

GENERATION = click.option(
    "--generation",
    type=int,
    metavar="N",
    help="Of the run's folder (storage.onExisting: StartFresh), instead of the run's own, or the "
    "newest where no status tells that.",
)


class QuietGroup(click.Group):
    """Commands that Ctrl-C ends with 130 and no words."""

    def invoke(self, ctx: click.Context) -> object:
        """Call the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(cls=QuietGroup, context_settings={"help_option_names": ["-h", "--help"]})
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
    '"node-loss rank=3 step=40". May be repeated.',
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, the status last.")
@click.option("--plain", is_flag=True, help="Plain lines, even on a terminal.")
@click.option("--no-color", is_flag=True, help="No colors (also: NO_COLOR in the environment).")
@click.option("-v", "--verbose", is_flag=True, help="Also show what the run waits for.")
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

    loaded()
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

    loaded()
    sys.exit(show_status(where, storage=storage, as_json=as_json))


@trainrun.command()
@click.argument("where", metavar="NAME|FILE|FOLDER|URI")
@click.option("--storage", metavar="URI", help="Storage instead of the file's.")
@click.option("-n", "--namespace", help="Namespace of NAME, instead of the kubeconfig's.")
@GENERATION
@click.option("--json", "to_json", is_flag=True, help="One JSON object per run.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it as one page that needs nothing else, instead of printing it.",
)
def explain(
    where: str,
    *,
    storage: str | None,
    namespace: str | None,
    generation: int | None,
    to_json: bool,
    html: Path | None,
) -> None:
    """Tell what became of a run: attempts, incidents, what they cost, and what to change.

    Reads the run's storage alone where the cluster is gone or the TrainRun deleted: its folder, or
    <storage URI>/<run name>. NAME (or NAMESPACE/NAME) is a TrainRun in the cluster of your
    kubeconfig. The storage is read with your own credentials.
    """
    from trainrun_operator.cli.explain import explain as explain_runs

    loaded()
    code = explain_runs(
        where,
        storage=storage,
        namespace=namespace,
        generation=generation,
        to_json=to_json,
        html=html,
    )
    sys.exit(code)


@trainrun.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replicas", type=int, metavar="N", help="Number of workers instead of the file's.")
@click.option(
    "--until-step",
    "until",
    type=click.IntRange(min=1),
    metavar="N",
    help="How far each run goes. Default: to the third checkpoint, or as far as a sixth of the "
    "time takes it.",
)
@click.option(
    "--within",
    default="5m",
    metavar="TIME",
    help="How long all of it may take, such as 90s or 20m. Default: 5m.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def drill(
    file: Path, *, replicas: int | None, until: int | None, within: str, as_json: bool
) -> None:
    """Rehearse on this machine what becomes of the TrainRun in FILE when something breaks.

    Two undisturbed runs are compared with three others: a rank is killed after a checkpoint, one is
    killed before the first, and a worker gets a notice. All in temporary storage, under another
    name, trackers offline. Exit code: 0 all is well, 4 something was found, 3 nothing was found but
    not everything was rehearsed, 1 the script fails without any fault.
    """
    from trainrun_operator.cli.drill import DrillOptions
    from trainrun_operator.cli.drill import drill as hold_drill

    loaded()
    options = DrillOptions(
        file=file, replicas=replicas, until=until, within=within, as_json=as_json
    )
    sys.exit(hold_drill(options))


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


class ListUnlessNamed(click.Group):
    """A group whose verb may be left out: then it is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the verb in its place."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@trainrun.group(cls=ListUnlessNamed)
def checkpoints() -> None:
    """Look at the checkpoints of a run, fetch one, or set one aside.

    `trainrun checkpoints FILE|URI` is `trainrun checkpoints list FILE|URI`.
    """


SCORE = click.option(
    "--score",
    metavar="NAME:Max|Min",
    help="Metric by which the best is chosen, and its order, instead of the file's.",
)


@checkpoints.command("list")
@click.argument("where", metavar="FILE|URI")
@click.option("--storage", metavar="URI", help="Storage instead of the file's.")
@click.option("--verify", is_flag=True, help="Read every file and compare its checksum.")
@GENERATION
@click.option("--all-generations", is_flag=True, help="All of them, oldest first.")
@SCORE
@click.option(
    "--can-resume",
    is_flag=True,
    help="No list: say whether a run would resume from one, and exit with 0 for yes, 3 for no, "
    "1 where that cannot be told.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def list_(
    where: str,
    *,
    storage: str | None,
    verify: bool,
    generation: int | None,
    all_generations: bool,
    score: str | None,
    can_resume: bool,
    as_json: bool,
) -> None:
    """List the checkpoints of the run of a YAML file, or of the run at <storage URI>/<run name>."""
    from trainrun_operator.cli.can_resume import show_prospect
    from trainrun_operator.cli.checkpoints import show_checkpoints

    loaded()
    if can_resume and verify:
        raise click.UsageError("--can-resume reads no files; use --verify without it")
    if all_generations and (can_resume or generation is not None):
        raise click.UsageError("--all-generations lists; use --generation or --can-resume alone")
    if can_resume:
        code = show_prospect(where, storage=storage, generation=generation, as_json=as_json)
        sys.exit(code)
    code = show_checkpoints(
        where,
        storage=storage,
        which="all" if all_generations else generation,
        verify=verify,
        score=score,
        as_json=as_json,
    )
    sys.exit(code)


@checkpoints.command()
@click.argument("where", metavar="FILE|URI")
@click.argument("steps", metavar="[STEP]", nargs=-1)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--storage", metavar="URI", help="Storage instead of the file's.")
@GENERATION
@SCORE
def get(
    where: str,
    *,
    steps: tuple[str, ...],
    folder: Path,
    storage: str | None,
    generation: int | None,
    score: str | None,
) -> None:
    """Bring the files of a checkpoint into the new folder DIR, each verified.

    That of STEP (or of a name such as step-000001200-attempt-3), or the newest good one. `best`
    instead of a step: the good one with the best value of checkpoint.scoreMetric.
    """
    from trainrun_operator.cli.checkpoint_files import get_checkpoint

    if len(steps) > 1:
        raise click.UsageError("give FILE|URI, at most one STEP, and DIR")
    step = steps[0] if steps else None
    code = get_checkpoint(
        where, storage=storage, generation=generation, step=step, score=score, folder=folder
    )
    sys.exit(code)


@checkpoints.command("set-aside")
@click.argument("where", metavar="FILE|URI")
@click.argument("step", metavar="STEP")
@click.option("--storage", metavar="URI", help="Storage instead of the file's.")
@GENERATION
@click.option("--reason", default="set aside by hand", metavar="TEXT", help="Why, for the record.")
def set_aside(
    where: str, *, step: str, storage: str | None, generation: int | None, reason: str
) -> None:
    """Never resume from the checkpoint of STEP again: it is damaged, or poisons the training.

    An attempt that runs goes on; the next one resumes from the newest checkpoint that is left.
    """
    from trainrun_operator.cli.checkpoint_files import set_checkpoint_aside

    code = set_checkpoint_aside(
        where, storage=storage, generation=generation, step=step, reason=reason
    )
    sys.exit(code)
