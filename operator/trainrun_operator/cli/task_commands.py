"""`trainrun tasks` and its verbs: names, options, help texts.

Layer: cli. Only click is imported here; what a command does is imported when it is called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import click

from trainrun_operator.cli.checkpoint_commands import ListUnlessNamed, placed
from trainrun_operator.cli.ctrl_c import loaded

WHERE = click.argument("where", metavar="[FILE|FOLDER|URI|NAME]", required=False)
WORDS = click.argument("words", metavar="[FILE|FOLDER|URI|NAME] KEY", nargs=-1, required=True)
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object.")


def _commands() -> ModuleType:
    from trainrun_operator.cli.tasks import commands  # noqa: PLC0415 - see above

    loaded()
    return commands


@click.group(cls=ListUnlessNamed, invoke_without_command=True)
@click.pass_context
def tasks(context: click.Context) -> None:
    """Look at a program of tasks, and have tasks run again.

    `trainrun tasks` alone is `trainrun tasks list`. FILE is the program (prepare.py) that was
    started in this folder, or the YAML file of a run; left out, it is the only program that was
    started here. NAME (or NAMESPACE/NAME) is a TrainRun in the cluster of your kubeconfig. The
    storage is read with your own credentials.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_)


@tasks.command("list")
@WHERE
@placed
@JSON
def list_(where: str | None = None, **options: Any) -> None:
    """Count tasks by state, and show which failed and why.

    Also the slowest, and done ones whose module has changed since. A call that no worker has taken
    yet stands in no log; of a run it is counted as waiting.
    """
    _commands().show(where, **options)


def _named(words: tuple[str, ...]) -> tuple[str | None, str]:
    if len(words) > 2:
        raise click.UsageError("give at most one FILE|FOLDER|URI|NAME, and KEY")
    return (words[0] if len(words) == 2 else None), words[-1]


@tasks.command()
@WORDS
@placed
@JSON
def explain(words: tuple[str, ...], **options: Any) -> None:
    """Tell the life of one task.

    Its tries and what ended them, its rebuilds, where its results are, and what to do. KEY is its
    key or the first characters of it.
    """
    where, key = _named(words)
    _commands().explain(where, key=key, **options)


@tasks.command()
@click.argument("words", metavar="[FILE|FOLDER|URI|NAME] [KEY]", nargs=-1)
@click.option("--failed", is_flag=True, help="All that have failed, instead of one KEY.")
@placed
def rebuild(words: tuple[str, ...], *, failed: bool, **options: Any) -> None:
    """Have a task run again.

    One that has failed or was cancelled gets fresh budgets. The results of a done one are declared
    lost, and those of the tasks that took them. A program that runs takes this up with the next
    entry in its log, another one when you start it.
    """
    if (len(words) > 1 and failed) or (not words and not failed):
        raise click.UsageError("give a KEY or --failed")
    where, key = ((*words, None)[0], "") if failed else _named(words)
    _commands().rebuild(where, key=key, **options)


@tasks.command()
@WHERE
@placed
def verify(where: str | None, **options: Any) -> None:
    """Read every result and compare its digest.

    Exits with 4 where one is missing or damaged. Results that are in the log, or on a node alone,
    are left out.
    """
    sys.exit(_commands().verify(where, **options))


@tasks.command()
@WHERE
@placed
@click.option("--dry-run", is_flag=True, help="Only name them.")
def gc(where: str | None, **options: Any) -> None:
    """Delete objects that no task needs.

    Those of results that were replaced, and what tries have left behind that came to nothing. Only
    of a program that has returned. The newest results of each task stay.
    """
    _commands().collect(where, **options)
