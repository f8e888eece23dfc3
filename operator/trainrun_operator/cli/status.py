"""`trainrun status`: how a run fares.

Layer: cli.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from trainrun.errors import TrainRunError
from trainrun_operator.api.run.status_json import json_object
from trainrun_operator.cli import wording
from trainrun_operator.cli.exit_codes import BAD_INPUT, SUCCEEDED
from trainrun_operator.cli.finding import find_runs
from trainrun_operator.cli.sources import RunState, Source
from trainrun_operator.cli.summary import facts, summary
from trainrun_operator.core.run.display import LASTING


def show_status(where: str, *, storage: str | None, namespace: str | None, as_json: bool) -> int:
    """Print the status of each run that `where` names; returns the exit code."""
    try:
        runs = find_runs(where, storage=storage, namespace=namespace)
        found = [(run, run.state()) for run in runs]
    except TrainRunError as error:
        click.echo(f"error: {error}", err=True)
        return BAD_INPUT
    for run, state in found:
        if as_json:
            click.echo(json.dumps(_as_json(run, state)))
        else:
            _print(run.name, state)
    return SUCCEEDED


def _print(name: str, state: RunState) -> None:
    status = state.status
    if state.leader is not None and not status.finished:
        click.echo(f"Run {name}: {status.phase}, led by process {state.leader}")
        lines = facts(status)
    else:
        lines = summary(name, status)
    for line in lines:
        click.echo(line)
    if waits := wording.restarting(status, now=datetime.now(UTC)):
        click.echo(f"  {waits}")
    for condition in status.conditions:
        if condition.type not in LASTING and condition.status == "True":
            click.echo(f"  {condition.type}: {condition.message}")


def _as_json(run: Source, state: RunState) -> dict[str, object]:
    return {
        "run": run.name,
        "storage": run.storage,
        "uid": state.uid,
        "ledBy": state.leader,
        "status": json_object(state.status),
    }
