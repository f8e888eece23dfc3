"""`trainrun sweep pause|stop|resume`: edit a TrainSweep's spec in the cluster; for a file, print
what to write into it.

Layer: cli. Only the spec is changed, as with `kubectl apply`; the sweep itself is not contacted.
Files are never written. An object is changed with the user's own rights, over the version that the
change was computed from, so that two users do not undo each other's changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, cast

from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.errors import InvalidSpec, TrainRunError
from trainrun.sweep.records import TrialState
from trainrun.sweep.view import TrialView
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.cli.finding import cluster_name
from trainrun_operator.cli.report.output import show_lines
from trainrun_operator.cli.sweeping.stored_sweep import load_sweep, store_of
from trainrun_operator.core.sweep.config import sweep_config

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion


FieldValue = bool | tuple[int, ...]

STEERED = {"suspend", "paused_trials", "stopped_trials"}
"""The spec's fields that these commands change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrials:
    """Trials by number, from the log or the status."""

    trials: Mapping[int, TrialView]
    trouble: str = ""
    """Why some started trials are missing; empty: none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the user asks of a sweep."""

    where: str
    """The sweep, as the command line takes it."""
    sweep: TrainSweep
    """Its current description."""
    trials: tuple[int, ...]
    """Without duplicates; empty: the whole sweep."""
    known: KnownTrials

    @property
    def open(self) -> tuple[int, ...]:
        """Its trials that have not ended, as far as known."""
        known = self.known.trials
        return tuple(n for n in self.trials if n not in known or known[n].open)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEdit:
    """The edit of the spec that carries out an order."""

    changed: dict[str, FieldValue]
    """New values of fields below `spec`."""
    outcome: str
    """The state after the edit, as text."""
    notes: tuple[str, ...] = ()


Follow = Callable[[Order], SweepEdit]
"""`paused`, `stopped` or `resumed`."""


def edit_of(follow: Follow, order: Order) -> SweepEdit:
    """The edit with only the fields that change, and with all notes. Raises InvalidSpec for a trial
    that does not exist, or cannot get into that state."""
    _check_budget(order)
    edit = needed(follow, order)
    return replace(edit, notes=(*_notes(order), *edit.notes))


def needed(follow: Follow, order: Order) -> SweepEdit:
    """As `edit_of`, from the spec alone."""
    edit = follow(order)
    now = order.sweep.spec.model_dump(by_alias=True, include=STEERED)
    changed = {field: to for field, to in edit.changed.items() if to != now[field]}
    return replace(edit, changed=changed)


def paused(order: Order) -> SweepEdit:
    """Save the trials and let them wait."""
    spec = order.sweep.spec
    if not order.trials:
        return SweepEdit(changed={"suspend": True}, outcome="all trials save and wait")
    _refuse_stopped(order, "paused")
    wanted = (*spec.paused_trials, *(n for n in order.open if n not in spec.paused_trials))
    return SweepEdit(changed={"pausedTrials": wanted}, outcome=_outcome(order.open, "paused"))


def stopped(order: Order) -> SweepEdit:
    """End the trials for good."""
    spec = order.sweep.spec
    wanted = (*spec.stopped_trials, *(n for n in order.open if n not in spec.stopped_trials))
    changed: dict[str, FieldValue] = {
        "pausedTrials": tuple(n for n in spec.paused_trials if n not in wanted),
        "stoppedTrials": wanted,
    }
    return SweepEdit(changed=changed, outcome=_outcome(order.open, "stopped for good"))


def resumed(order: Order) -> SweepEdit:
    """Let paused trials continue."""
    spec = order.sweep.spec
    if not order.trials:
        changed: dict[str, FieldValue] = {"suspend": False, "pausedTrials": ()}
        return SweepEdit(changed=changed, outcome="all trials may continue")
    _refuse_stopped(order, "resumed")
    left = tuple(n for n in spec.paused_trials if n not in order.trials)
    waits = f"spec.suspend is true: no trial continues until `trainrun sweep resume {order.where}`"
    return SweepEdit(
        changed={"pausedTrials": left},
        outcome=_outcome(order.trials, "not paused"),
        notes=(waits,) if spec.suspend else (),
    )


def _refuse_stopped(order: Order, what: str) -> None:
    stopped = [n for n in order.trials if n in order.sweep.spec.stopped_trials]
    if stopped:
        raise InvalidSpec(
            f"{_named(stopped)} cannot be {what}: spec.stoppedTrials ends a trial for good"
        )


def _outcome(trials: tuple[int, ...], state: str) -> str:
    return f"{_named(trials)} {'are' if len(trials) > 1 else 'is'} {state}" if trials else ""


def _named(trials: tuple[int, ...] | list[int]) -> str:
    return f"trial{'s' if len(trials) > 1 else ''} {', '.join(map(str, trials))}"


def _check_budget(order: Order) -> None:
    most = sweep_config(order.sweep).trials
    beyond = [n for n in order.trials if n >= most and n not in order.known.trials]
    if beyond:
        raise InvalidSpec(
            f"there is no {_named(beyond)}: the budget is {most} trials, numbered from 0"
        )


def _notes(order: Order) -> Iterator[str]:
    known = order.known
    unknown = [n for n in order.trials if n not in known.trials]
    if known.trouble and unknown:
        yield known.trouble
    for number in order.trials:
        trial = known.trials.get(number)
        if trial is not None and not trial.open:
            yield f"trial {number} has ended ({trial.state})"
        elif trial is None and not known.trouble:
            yield f"trial {number} has not started yet"


def steer(
    follow: Follow, where: str, *, trials: tuple[int, ...], namespace: str | None, as_json: bool
) -> None:
    """Change the TrainSweep of this name and print the result; no trials: the whole sweep. Raises
    InvalidSpec, and errors of the cluster."""
    trials = tuple(dict.fromkeys(trials))
    name = cluster_name(where, namespace)
    if name is None:
        _refuse_file(follow, where, trials)
    # Imported only here: aiohttp and the client library take half a second.
    from trainrun_operator.worlds.kubernetes.user_client import change_sweep  # noqa: PLC0415

    steering = _PauseResumePatch(follow=follow, trials=trials)
    change_sweep(name.name, name.namespace, steering.fields)
    data = {"sweep": steering.where, **asdict(steering.edit)}
    show_lines(steering.lines(), data, as_json=as_json)


@dataclass(slots=True, kw_only=True)
class _PauseResumePatch:
    """Computes the edit, again for each new version if others write at the same time."""

    follow: Follow
    trials: tuple[int, ...]
    known: KnownTrials | None = None
    """Read once: reading takes seconds, and others would write again meanwhile."""
    where: str = ""
    edit: SweepEdit = SweepEdit(changed={}, outcome="")
    follows: str = ""
    """Who applies the edit, for the message."""

    def fields(self, version: SweepVersion) -> Mapping[str, object]:
        if self.known is None:
            self.known = _read_trials(version) if self.trials else KnownTrials(trials={})
        self.where, self.follows = version.where, _who_follows(version)
        order = Order(where=self.where, sweep=version.sweep, trials=self.trials, known=self.known)
        self.edit = edit_of(self.follow, order)
        return self.edit.changed

    def lines(self) -> Iterator[str]:
        edit = self.edit
        yield from (f"note: {note}" for note in edit.notes)
        if edit.changed:
            yield f"{self.where}: {edit.outcome}; {self.follows}"
        else:
            because = f": {edit.outcome}" if edit.outcome else ""
            yield f"{self.where}: nothing to change{because}"


def _read_trials(version: SweepVersion) -> KnownTrials:
    """The trials of the log. If it cannot be read, those in the status and the reason: the spec can
    still be changed."""
    sweep = version.sweep
    try:
        view = SweepLog(RunStore(store_of(sweep), sweep.sweep_name)).read_on()
    except TrainRunError as error:
        trouble = f"these trials may have ended: the log cannot be read: {error}"
        return KnownTrials(trials=_trials_in_status(version.status), trouble=trouble)
    return KnownTrials(trials=view.trials)


def _trials_in_status(status: TrainSweepStatus) -> dict[int, TrialView]:
    """The few trials that the operator's status lists."""
    running = {number: TrialView(number, {}) for number in status.running}
    ended = {
        end.trial: TrialView(end.trial, {}, state=cast("TrialState", end.state), reason=end.reason)
        for end in status.last_ended
    }
    return {**running, **ended}


def _who_follows(version: SweepVersion) -> str:
    if version.status.holder:
        return "the operator applies this now"
    return "no operator leads the sweep yet; the first one that does will apply this"


def _refuse_file(follow: Follow, where: str, trials: tuple[int, ...]) -> NoReturn:
    """Raises InvalidSpec that says what to write into the file."""
    file = Path(where)
    if file.is_dir() or "://" in where:
        raise InvalidSpec(
            f"{where} is a results folder. To change what a sweep does, name its YAML file or its "
            "TrainSweep in the cluster"
        )
    order = Order(where=where, sweep=load_sweep(file), trials=trials, known=KnownTrials(trials={}))
    edit = needed(follow, order)
    if not edit.changed:
        raise InvalidSpec(f"{where}: nothing to change: {edit.outcome}")
    fields = ", ".join(f"spec.{key}: {json.dumps(value)}" for key, value in edit.changed.items())
    raise InvalidSpec(
        f"{where}: this command does not edit files. Write {fields} into it ({edit.outcome}); a "
        "running sweep applies that within two seconds"
    )
