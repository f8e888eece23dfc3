"""Commands for somebody who sets TrainRun up: names, options, help texts.

Layer: cli. Only click is imported here; each command imports its own module when it is called.
"""
# ruff: noqa: PLC0415 - the late imports are the point of this module

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trainrun_operator.cli.checkpoint_commands import NAMESPACE
from trainrun_operator.cli.ctrl_c import loaded

NAME = "trainrun"
"""Of the executable that is completed."""


@click.command()
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--for",
    "kind",
    type=click.Choice(["plain", "torch", "huggingface", "lightning"]),
    default="plain",
    help="What the script trains with. Default: plain, Python without further packages.",
)
def init(folder: Path, *, kind: str) -> None:
    """Write train.py and train.yaml into FOLDER, by default this one: a run to begin with.

    `trainrun run train.yaml` runs it as it is; checkpoints go to FOLDER/runs. It changes no file
    that exists.
    """
    from trainrun_operator.cli.init import write_first_run

    loaded()
    write_first_run(kind, folder)


@click.command()
@click.argument("where", metavar="[FILE|URI]", required=False)
@click.option("--cluster", is_flag=True, help="Also look at the cluster of your kubeconfig.")
@NAMESPACE
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(where: str | None, **options: Any) -> None:
    """Check whether this machine, a storage and a cluster are ready for a run.

    The storage is that of the TrainRun or TrainSweep in FILE, or a URI such as s3://bucket/prefix:
    a probe object is written, read, listed and deleted there, with your own credentials. Each line
    is OK, WARN, FAIL, or SKIP for what could not be looked at, and says what to do. Exits with 1 if
    one of them is FAIL.
    """
    from trainrun_operator.cli.doctor import examine

    loaded()
    sys.exit(examine(where, **options))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def version(*, as_json: bool) -> None:
    """Show the versions of this command, of the operator, and of the resources that the cluster of
    your kubeconfig serves.

    If the cluster cannot be reached, it says why and still exits with 0.
    """
    from trainrun_operator.cli.version import show_version

    loaded()
    show_version(as_json=as_json)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes a shell complete the commands and options of `trainrun`.

    For bash add `source <(trainrun completion bash)` to ~/.bashrc; for zsh the same with zsh to
    ~/.zshrc, after compinit; for fish run `trainrun completion fish >
    ~/.config/fish/completions/trainrun.fish`.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click knows all shells of the choice"
    command = context.find_root().command
    click.echo(found(command, {}, NAME, f"_{NAME.upper()}_COMPLETE").source())


SETUP: tuple[click.Command, ...] = (init, doctor, version, completion)
"""In the order of the help."""
