"""`trainrun sweep pause|stop|resume`: what a sweep is to do with its trials, said in the TrainSweep
of the cluster; for a file it is told what to write there.

Layer: cli. The spec is the truth, as for `kubectl apply`: the sweep itself is not talked to. A file
is its user's, so nothing is written into it; an object is changed with the user's own rights, over
the version that the change follows from: two users do not undo each other's changes.
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
from trainrun_operator.cli.report.output import tell
from trainrun_operator.cli.sweeping.stored_sweep import load_sweep, store_of
from trainrun_operator.core.sweep.config import sweep_config

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion


FieldValue = bool | tuple[int, ...]

STEERED = {"suspend", "paused_trials", "stopped_trials"}
"""The fields of the spec that orders change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrials:
    """What is known of trials."""

    trials: Mapping[int, TrialView]
    trouble: str = ""
    """Why not all that have begun are among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is wanted of a sweep."""

    where: str
    """The sweep, as the command line takes it."""
    sweep: TrainSweep
    """As it is described now."""
    trials: tuple[int, ...]
    """Each once; none: the whole sweep."""
    known: KnownTrials

    @property
    def open(self) -> tuple[int, ...]:
        """Those that have not ended, or are not known yet."""
        known = self.known.trials
        return tuple(n for n in self.trials if n not in known or known[n].open)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEdit:
    """What follows from an order."""

    changed: dict[str, FieldValue]
    """Fields below `spec`."""
    outcome: str
    """What holds then."""
    notes: tuple[str, ...] = ()


Follow = Callable[[Order], SweepEdit]
"""Pausing, stopping or resuming."""


def edit_of(follow: Follow, order: Order) -> SweepEdit:
    """What is to be written, without what is so already, and all that is to be said. Raises
    InvalidSpec for a trial that does not exist, or cannot be in that state."""
    _check_budget(order)
    edit = needed(follow, order)
    return replace(edit, notes=(*_notes(order), *edit.notes))


def needed(follow: Follow, order: Order) -> SweepEdit:
    """The same from the spec alone."""
    edit = follow(order)
    now = order.sweep.spec.model_dump(by_alias=True, include=STEERED)
    changed = {field: to for field, to in edit.changed.items() if to != now[field]}
    return replace(edit, changed=changed)


def paused(order: Order) -> SweepEdit:
    """Saved, and waiting."""
    spec = order.sweep.spec
    if not order.trials:
        return SweepEdit(changed={"suspend": True}, outcome="all trials are to be saved and wait")
    _refuse_stopped(order, "paused")
    wanted = (*spec.paused_trials, *(n for n in order.open if n not in spec.paused_trials))
    return SweepEdit(changed={"pausedTrials": wanted}, outcome=_outcome(order.open, "paused"))


def stopped(order: Order) -> SweepEdit:
    """Ended for good."""
    spec = order.sweep.spec
    wanted = (*spec.stopped_trials, *(n for n in order.open if n not in spec.stopped_trials))
    changed: dict[str, FieldValue] = {
        "pausedTrials": tuple(n for n in spec.paused_trials if n not in wanted),
        "stoppedTrials": wanted,
    }
    return SweepEdit(changed=changed, outcome=_outcome(order.open, "stopped for good"))


def resumed(order: Order) -> SweepEdit:
    """Not paused any more."""
    spec = order.sweep.spec
    if not order.trials:
        changed: dict[str, FieldValue] = {"suspend": False, "pausedTrials": ()}
        return SweepEdit(changed=changed, outcome="all trials may go on")
    _refuse_stopped(order, "resumed")
    left = tuple(n for n in spec.paused_trials if n not in order.trials)
    waits = f"spec.suspend is true: no trial goes on before `trainrun sweep resume {order.where}`"
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
            f"there is no {_named(beyond)}: the budget is {most} trials, which are counted from 0"
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
            yield f"trial {number} has not begun yet"


def steer(
    follow: Follow, where: str, *, trials: tuple[int, ...], namespace: str | None, as_json: bool
) -> None:
    """Change the TrainSweep of this name, and say so; no trials: all of it. Raises InvalidSpec, and
    what a cluster answers."""
    trials = tuple(dict.fromkeys(trials))
    name = cluster_name(where, namespace)
    if name is None:
        _refuse_file(follow, where, trials)
    # aiohttp and the client library: half a second that files need not wait.
    from trainrun_operator.worlds.kubernetes.user_client import change_sweep  # noqa: PLC0415

    steering = _PauseResumePatch(follow=follow, trials=trials)
    change_sweep(name.name, name.namespace, steering.fields)
    data = {"sweep": steering.where, **asdict(steering.edit)}
    tell(steering.lines(), data, as_json=as_json)


@dataclass(slots=True, kw_only=True)
class _PauseResumePatch:
    """For one version after the other, where others write as well."""

    follow: Follow
    trials: tuple[int, ...]
    known: KnownTrials | None = None
    """Read once: whole seconds, in which others would write again."""
    where: str = ""
    edit: SweepEdit = SweepEdit(changed={}, outcome="")
    follows: str = ""
    """Who goes by it."""

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
            yield f"{self.where}: nothing had to be changed{because}"


def _read_trials(version: SweepVersion) -> KnownTrials:
    """The trials of the log; where it cannot be read those that the operator tells of, and why: the
    spec can be changed all the same."""
    sweep = version.sweep
    try:
        view = SweepLog(RunStore(store_of(sweep), sweep.sweep_name)).read_on()
    except TrainRunError as error:
        trouble = f"whether these trials are open is not known, the log cannot be read: {error}"
        return KnownTrials(trials=_trials_in_status(version.status), trouble=trouble)
    return KnownTrials(trials=view.trials)


def _trials_in_status(status: TrainSweepStatus) -> dict[int, TrialView]:
    """What the operator says of trials: it tells of a few."""
    running = {number: TrialView(number, {}) for number in status.running}
    ended = {
        end.trial: TrialView(end.trial, {}, state=cast("TrialState", end.state), reason=end.reason)
        for end in status.last_ended
    }
    return {**running, **ended}


def _who_follows(version: SweepVersion) -> str:
    if version.status.holder:
        return "the operator takes it up"
    return "no operator leads the sweep yet, the first one that does goes by it"


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
    if not edit.changed:
        raise InvalidSpec(f"{where}: nothing has to be changed in it: {edit.outcome}")
    fields = ", ".join(f"spec.{key}: {json.dumps(value)}" for key, value in edit.changed.items())
    raise InvalidSpec(
        f"{where}: a file is changed by its user alone: write {fields} into it ({edit.outcome}); a "
        "sweep that runs takes that up within two seconds"
    )
