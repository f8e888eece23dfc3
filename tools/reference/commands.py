"""The verbs of the command line with their arguments and options, from its own help."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tools.reference.markdown import code, document, prose, table
from trainrun_operator.cli.commands import trainrun


def page() -> str:
    """The page."""
    context = click.Context(trainrun, info_name=trainrun.name, **trainrun.context_settings)
    return document(
        "The command line",
        "the help texts of `trainrun`",
        "How to use it is in [running on one machine](../local-runs.md).",
        *_commands(trainrun, context),
    )


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    """Each command of a group, and those below it after it."""
    for command in group.commands.values():
        # Below the group: a command remembers the names of its help option from its first context.
        below = click.Context(command, parent=context, info_name=command.name)
        yield _command(command, below)
        if isinstance(command, click.Group):
            yield from _commands(command, below)


def _command(command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    options = [
        (code(record[0]), record[1])
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context))
    ]
    return "\n\n".join(
        [
            f"## `{context.command_path}`",
            f"```\n{context.command_path} {usage}\n```",
            prose(command.help),
            *([table(("Option", "Means"), options)] if options else []),
        ]
    )
