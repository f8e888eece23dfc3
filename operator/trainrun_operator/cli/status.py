"""`trainrun status`: how a run fares.

Layer: cli.
"""

from __future__ import annotations

from dataclasses import replace

import click

from trainrun.errors import TrainRunError
from trainrun_operator.api.run.status import json_object
from trainrun_operator.cli.exit_codes import BAD_INPUT, SUCCEEDED
from trainrun_operator.cli.finding import find_runs
from trainrun_operator.cli.report.output import show
from trainrun_operator.cli.sources import RunState, Source
from trainrun_operator.cli.summary import report_of


def show_status(where: str, *, storage: str | None, namespace: str | None, as_json: bool) -> int:
    """Print the status of each run that `where` names; returns the exit code."""
    try:
        runs = find_runs(where, storage=storage, namespace=namespace)
        found = [(run, run.state()) for run in runs]
    except TrainRunError as error:
        click.echo(f"error: {error}", err=True)
        return BAD_INPUT
    for run, state in found:
        report = report_of(run.name, state.status, leader=state.leader)
        show(replace(report, data=_as_json(run, state)), as_json=as_json)
    return SUCCEEDED


def _as_json(run: Source, state: RunState) -> dict[str, object]:
    return {
        "run": run.name,
        "storage": run.storage,
        "uid": state.uid,
        "ledBy": state.leader,
        "status": json_object(state.status),
    }
