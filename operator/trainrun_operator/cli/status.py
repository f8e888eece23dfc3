"""`trainrun status`: what this machine knows of a run.

Layer: cli.
"""

from __future__ import annotations

import json

import click

from trainrun.errors import TrainRunError
from trainrun_operator.cli.exit_codes import BAD_INPUT, SUCCEEDED
from trainrun_operator.cli.finding import FoundRun, UnknownRun, find_runs
from trainrun_operator.cli.summary import facts, summary
from trainrun_operator.core.display import LASTING
from trainrun_operator.worlds.local.driver_lock import leader_of
from trainrun_operator.worlds.local.status_file import StatusFile, StoredRun


def show_status(where: str, *, storage: str | None, as_json: bool) -> int:
    """Print the status of each run that `where` names; returns the exit code."""
    try:
        found = [(run, _read(run)) for run in find_runs(where, storage=storage)]
    except TrainRunError as error:
        click.echo(f"error: {error}", err=True)
        return BAD_INPUT
    for run, stored in found:
        if as_json:
            click.echo(json.dumps(_as_json(run, stored)))
        else:
            _print(run, stored)
    return SUCCEEDED


def _read(run: FoundRun) -> StoredRun:
    stored = StatusFile(run.place.status).read()
    if stored is None:
        raise UnknownRun(
            f"run {run.name} in {run.uri} was never started on this machine ({run.place.status} "
            "does not exist); `trainrun checkpoints` shows what its storage holds"
        )
    return stored


def _print(run: FoundRun, stored: StoredRun) -> None:
    leader = leader_of(run.place.lock)
    status = stored.status
    if leader is not None and not status.finished:
        click.echo(f"Run {run.name}: {status.phase}, led by process {leader.pid}")
        lines = facts(status)
    else:
        lines = summary(run.name, status)
    for line in lines:
        click.echo(line)
    for condition in status.conditions:
        if condition.type not in LASTING and condition.status == "True":
            click.echo(f"  {condition.type}: {condition.message}")


def _as_json(run: FoundRun, stored: StoredRun) -> dict[str, object]:
    leader = leader_of(run.place.lock)
    return {
        "run": run.name,
        "storage": run.uri,
        "uid": stored.uid,
        "ledBy": None if leader is None else leader.pid,
        "status": stored.status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
