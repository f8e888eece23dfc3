"""`trainrun sweep pause|stop|resume`: what a sweep is to do with its trials, said in its file.

Layer: cli. The file is the truth, as for `kubectl apply`: the sweep itself is not talked to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from trainrun.checkpoint import RunStore
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.errors import InvalidSpec, TrainRunError
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.api.loading import load
from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.cli.exit_codes import SUCCEEDED
from trainrun_operator.cli.preparation import read_file
from trainrun_operator.cli.refusal import refused
from trainrun_operator.cli.run_options import RunOptions
from trainrun_operator.cli.sweeping.editing import FieldValue, edited
from trainrun_operator.cli.sweeping.loading import load_sweep, store_of
from trainrun_operator.cli.sweeping.replacing import replace_text
from trainrun_operator.core.sweep.config import sweep_config
from trainrun_operator.worlds.local.driver_lock import leader_of
from trainrun_operator.worlds.local.place import place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is wanted of a sweep."""

    sweep: TrainSweep
    """As its file describes it now."""
    trials: tuple[int, ...]
    """Each once; none: the whole sweep."""
    known: Mapping[int, TrialView]
    """What the log says of trials."""

    @property
    def open(self) -> tuple[int, ...]:
        """Those that have not ended, or are not known yet."""
        known = self.known
        return tuple(it for it in self.trials if it not in known or known[it].open)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEdit:
    """What follows from an order."""

    changes: dict[str, FieldValue]
    """Fields below `spec`; those that have this value already are none."""
    outcome: str
    """What holds then."""
    notes: tuple[str, ...] = field(default=())


def pause_trials(file: Path, trials: tuple[int, ...], *, storage: str | None) -> int:
    """Save these trials, or all, and let them wait; returns the exit code."""
    return _carried_out(_paused, file, trials, storage=storage)


def stop_trials(file: Path, trials: tuple[int, ...], *, storage: str | None) -> int:
    """End these trials for good; returns the exit code."""
    return _carried_out(_stopped, file, trials, storage=storage)


def resume_trials(file: Path, trials: tuple[int, ...], *, storage: str | None) -> int:
    """Let these trials, or all, go on; returns the exit code."""
    return _carried_out(_resumed, file, trials, storage=storage)


# ------------------------------------------------------------------------ what is to be changed


def _paused(order: Order) -> SweepEdit:
    spec = order.sweep.spec
    if not order.trials:
        return SweepEdit(changes={"suspend": True}, outcome="all trials are to be saved and wait")
    _refuse_stopped(order, "paused")
    paused = (*spec.paused_trials, *(it for it in order.open if it not in spec.paused_trials))
    return SweepEdit(changes={"pausedTrials": paused}, outcome=_said(order.open, "paused"))


def _stopped(order: Order) -> SweepEdit:
    spec = order.sweep.spec
    stopped = (*spec.stopped_trials, *(it for it in order.open if it not in spec.stopped_trials))
    changes: dict[str, FieldValue] = {
        "pausedTrials": tuple(it for it in spec.paused_trials if it not in stopped),
        "stoppedTrials": stopped,
    }
    return SweepEdit(changes=changes, outcome=_said(order.open, "stopped for good"))


def _resumed(order: Order) -> SweepEdit:
    spec = order.sweep.spec
    if not order.trials:
        changes: dict[str, FieldValue] = {"suspend": False, "pausedTrials": ()}
        return SweepEdit(changes=changes, outcome="all trials may go on")
    _refuse_stopped(order, "resumed")
    left = tuple(it for it in spec.paused_trials if it not in order.trials)
    waits = "spec.suspend is true: no trial goes on before `trainrun sweep resume FILE`"
    return SweepEdit(
        changes={"pausedTrials": left},
        outcome=_said(order.trials, "not paused"),
        notes=(waits,) if spec.suspend else (),
    )


def _refuse_stopped(order: Order, what: str) -> None:
    stopped = [it for it in order.trials if it in order.sweep.spec.stopped_trials]
    if stopped:
        raise InvalidSpec(
            f"{_named(stopped)} cannot be {what}: spec.stoppedTrials ends a trial for good"
        )


def _said(trials: tuple[int, ...], state: str) -> str:
    return f"{_named(trials)} {'are' if len(trials) > 1 else 'is'} {state}" if trials else ""


def _named(trials: tuple[int, ...] | list[int]) -> str:
    return f"trial{'s' if len(trials) > 1 else ''} {', '.join(map(str, trials))}"


# ------------------------------------------------------------------------------ carrying it out


def _carried_out(
    follow: Callable[[Order], SweepEdit],
    file: Path,
    trials: tuple[int, ...],
    *,
    storage: str | None,
) -> int:
    try:
        text = read_file(file)
        sweep = load_sweep(file, storage=storage)
        known, trouble = _known(sweep) if trials else ({}, ())
        order = Order(sweep=sweep, trials=tuple(dict.fromkeys(trials)), known=known)
        _check_budget(order)
        edit = follow(order)
        changes = {it: to for it, to in edit.changes.items() if to != _now(sweep, it)}
        if changes:
            new = edited(text, changes, source=str(file))
            load(new, TRAINSWEEP, source=str(file))
            replace_text(file, new, before=text)
    except TrainRunError as error:
        return refused(error)
    for note in (*(trouble or _notes(order)), *edit.notes):
        click.echo(f"note: {note}")
    if changes:
        click.echo(f"{file}: {edit.outcome}; {_who_follows(file, sweep, storage=storage)}")
    else:
        because = f": {edit.outcome}" if edit.outcome else ""
        click.echo(f"{file}: nothing had to be changed{because}")
    return SUCCEEDED


def _known(sweep: TrainSweep) -> tuple[Mapping[int, TrialView], tuple[str, ...]]:
    """The trials of the log, and why they cannot be told: the file can be changed all the same."""
    try:
        view: SweepView = SweepLog(RunStore(store_of(sweep), sweep.sweep_name)).read_on()
    except TrainRunError as error:
        return {}, (f"whether these trials are open is not known, the log cannot be read: {error}",)
    return view.trials, ()


def _check_budget(order: Order) -> None:
    most = sweep_config(order.sweep).trials
    beyond = [it for it in order.trials if it >= most and it not in order.known]
    if beyond:
        raise InvalidSpec(
            f"there is no {_named(beyond)}: the budget is {most} trials, which are counted from 0"
        )


def _now(sweep: TrainSweep, name: str) -> FieldValue:
    """A field's value as the file has it."""
    spec = sweep.spec
    values: dict[str, FieldValue] = {
        "suspend": spec.suspend,
        "pausedTrials": spec.paused_trials,
        "stoppedTrials": spec.stopped_trials,
    }
    return values[name]


def _notes(order: Order) -> Iterator[str]:
    for number in order.trials:
        trial = order.known.get(number)
        if trial is None:
            yield f"trial {number} has not begun yet"
        elif not trial.open:
            yield f"trial {number} has ended ({trial.state})"


def _who_follows(file: Path, sweep: TrainSweep, *, storage: str | None) -> str:
    place = place_of(sweep.spec.storage.uri, sweep.sweep_name, environ=os.environ)
    leader = leader_of(place.lock)
    if leader is not None:
        return f"process {leader.pid}, which leads the sweep, takes it up"
    command = RunOptions(file=file, storage=storage).command
    return f"no process leads the sweep on this machine, `{command}` goes by it"
