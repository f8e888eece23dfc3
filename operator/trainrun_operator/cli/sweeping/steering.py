"""`trainrun sweep pause|stop|resume`: what a sweep is to do with its trials, said in the TrainSweep
of the cluster; for a file it is told what to write there.

Layer: cli. The spec is the truth, as for `kubectl apply`: the sweep itself is not talked to. A file
is its user's, so nothing is written into it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.cli.cluster_names import cluster_name
from trainrun_operator.cli.exit_codes import SUCCEEDED
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.sweeping.loading import load_sweep
from trainrun_operator.cli.sweeping.orders import (
    Follow,
    KnownTrials,
    Order,
    Steered,
    needed,
    paused,
    resumed,
    stopped,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringOptions:
    """What was asked for."""

    where: str
    """The sweep: a name in the cluster, or a file."""
    trials: tuple[int, ...]
    """By number; empty: the whole sweep."""
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
    trials = tuple(dict.fromkeys(options.trials))
    try:
        name = cluster_name(options.where, options.namespace)
        if name is None:
            _refuse_file(follow, options.where, trials)
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


def _refuse_file(follow: Follow, where: str, trials: tuple[int, ...]) -> NoReturn:
    """Say what to write into the file. Raises InvalidSpec, whatever it holds."""
    file = Path(where)
    if file.is_dir() or "://" in where:
        raise InvalidSpec(
            f"{where} is a folder, which tells what a sweep has come to: what it is to do stands "
            "in its YAML file, or in the TrainSweep of a cluster"
        )
    order = Order(where=where, sweep=load_sweep(file), trials=trials, known=KnownTrials(trials={}))
    edit = needed(follow, order)
    if not edit.changes:
        raise InvalidSpec(f"{where}: nothing has to be changed in it: {edit.outcome}")
    fields = ", ".join(f"spec.{it}: {json.dumps(value)}" for it, value in edit.changes.items())
    raise InvalidSpec(
        f"{where}: a file is changed by its user alone: write {fields} into it ({edit.outcome}); a "
        "sweep that runs takes that up within two seconds"
    )


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
