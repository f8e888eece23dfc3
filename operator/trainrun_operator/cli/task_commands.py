"""`trainrun tasks` and its verbs: names, options, help texts.

Layer: cli. Only click is imported here; each command imports its own module when it is called.
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
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _commands() -> ModuleType:
    from trainrun_operator.cli.tasks import commands  # noqa: PLC0415 - see above

    loaded()
    return commands


@click.group(cls=ListUnlessNamed, invoke_without_command=True)
@click.pass_context
def tasks(context: click.Context) -> None:
    """Show a program of tasks, and run tasks again.

    `trainrun tasks` alone is `trainrun tasks list`. FILE is a program (prepare.py) started in this
    folder, or the YAML file of a run; by default the only program started here. NAME (or
    NAMESPACE/NAME) is a TrainRun in the cluster of your kubeconfig. The storage is read with your
    own credentials.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_)


@tasks.command("list")
@WHERE
@placed
@JSON
def list_(where: str | None = None, **options: Any) -> None:
    """Count tasks by state, and show which failed and why.

    Also shows the slowest tasks, and done tasks whose module changed since. The log does not hold
    calls that no worker has taken yet; for a run they count as waiting.
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
    """Explain what happened to one task.

    Shows its tries and what ended them, its rebuilds, where its results are, and what to do. KEY is
    its key or the first characters of it.
    """
    where, key = _named(words)
    _commands().explain(where, key=key, **options)


@tasks.command()
@click.argument("words", metavar="[FILE|FOLDER|URI|NAME] [KEY]", nargs=-1)
@click.option("--failed", is_flag=True, help="Run all failed tasks again, instead of one KEY.")
@placed
def rebuild(words: tuple[str, ...], *, failed: bool, **options: Any) -> None:
    """Run a task again.

    A failed or cancelled task gets fresh budgets. The results of a done task are declared lost, and
    so are those of the tasks that took them. A running program does this with the next entry in its
    log, any other when you start it.
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

    Exits with 4 if one is missing or damaged. Does not check results that are in the log or only on
    a node.
    """
    sys.exit(_commands().verify(where, **options))


@tasks.command()
@WHERE
@placed
@click.option("--dry-run", is_flag=True, help="Only list them.")
def gc(where: str | None, **options: Any) -> None:
    """Delete objects that no task needs.

    These are replaced results, and leftovers of tries that did not finish. The program must have
    returned. The newest results of each task stay.
    """
    _commands().collect(where, **options)
