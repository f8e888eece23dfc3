"""`trainrun sweep pause|stop|resume`: what a sweep is to do with its trials, said in its file, or
in the TrainSweep of the cluster.

Layer: cli. The spec is the truth, as for `kubectl apply`: the sweep itself is not talked to.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import click

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.api.loading import load
from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.cli.cluster_names import cluster_name
from trainrun_operator.cli.exit_codes import SUCCEEDED
from trainrun_operator.cli.preparation import read_file
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.run_options import RunOptions
from trainrun_operator.cli.sweeping.editing import edited
from trainrun_operator.cli.sweeping.loading import load_sweep
from trainrun_operator.cli.sweeping.orders import (
    Follow,
    KnownTrials,
    Order,
    Steered,
    edit_of,
    known_trials,
    paused,
    resumed,
    stopped,
)
from trainrun_operator.cli.sweeping.replacing import replace_text
from trainrun_operator.worlds.local.driver_lock import leader_of
from trainrun_operator.worlds.local.place import place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringOptions:
    """What was asked for."""

    where: str
    """The sweep: a file, or a name in the cluster."""
    trials: tuple[int, ...]
    """By number; empty: the whole sweep."""
    storage: str | None
    """Of a file, instead of its own."""
    namespace: str | None
    """Of a name, instead of the kubeconfig's."""
    as_json: bool


def pause_trials(options: SteeringOptions) -> int:
    """Save these trials, or all, and let them wait; returns the exit code."""
    return _carried_out(paused, options)


def stop_trials(options: SteeringOptions) -> int:
    """End these trials for good; returns the exit code."""
    return _carried_out(stopped, options)


def resume_trials(options: SteeringOptions) -> int:
    """Let these trials, or all, go on; returns the exit code."""
    return _carried_out(resumed, options)


def _carried_out(follow: Follow, options: SteeringOptions) -> int:
    name = cluster_name(options.where, options.namespace)
    trials = tuple(dict.fromkeys(options.trials))
    try:
        if name is None:
            done = _in_file(follow, options.where, trials, storage=options.storage)
        elif options.storage is not None:
            raise InvalidSpec(
                f"--storage is for a sweep of this machine, and {options.where} is one of the "
                "cluster: leave it out, or give the sweep's YAML file"
            )
        else:
            # aiohttp and the client library: half a second that files need not wait.
            from trainrun_operator.cli.sweeping.cluster_steering import (  # noqa: PLC0415
                steer_in_cluster,
            )

            done = steer_in_cluster(follow, name, trials)
    except TrainRunError as error:
        return refused(error)
    if options.as_json:
        click.echo(json.dumps(_as_json(done)))
    else:
        _print(done)
    return SUCCEEDED


def _print(done: Steered) -> None:
    edit = done.edit
    for note in edit.notes:
        click.echo(f"note: {note}")
    if edit.changes:
        click.echo(f"{done.where}: {edit.outcome}; {done.follows}")
    else:
        because = f": {edit.outcome}" if edit.outcome else ""
        click.echo(f"{done.where}: nothing had to be changed{because}")


def _as_json(done: Steered) -> dict[str, object]:
    return {
        "sweep": done.where,
        "changed": done.edit.changes,
        "outcome": done.edit.outcome,
        "notes": list(done.edit.notes),
    }


def _in_file(
    follow: Follow, where: str, trials: tuple[int, ...], *, storage: str | None
) -> Steered:
    """Change the file. Raises InvalidSpec."""
    file = Path(where)
    if file.is_dir() or "://" in where:
        raise InvalidSpec(
            f"{where} is a folder, which tells what a sweep has come to: what it is to do stands "
            "in its YAML file, or in the TrainSweep of a cluster; give that file or name"
        )
    text = read_file(file)
    sweep = load_sweep(file, storage=storage)
    known = known_trials(sweep) if trials else KnownTrials(trials={})
    edit = edit_of(follow, Order(where=where, sweep=sweep, trials=trials, known=known))
    if edit.changes:
        new = edited(text, edit.changes, source=where)
        load(new, TRAINSWEEP, source=where)
        replace_text(file, new, before=text)
    follows = _who_follows(file, sweep, storage=storage)
    return Steered(where=where, edit=edit, follows=follows)


def _who_follows(file: Path, sweep: TrainSweep, *, storage: str | None) -> str:
    place = place_of(sweep.spec.storage.uri, sweep.sweep_name, environ=os.environ)
    leader = leader_of(place.lock)
    if leader is not None:
        return f"process {leader.pid}, which leads the sweep, takes it up"
    command = RunOptions(file=file, storage=storage).command
    return f"no process leads the sweep on this machine, `{command}` goes by it"
