"""What is to be changed in the spec of a sweep so that its trials are paused, stopped or resumed.

Layer: cli; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from trainrun.errors import InvalidSpec
from trainrun.sweep.view import TrialView
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.core.sweep.config import sweep_config

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
        return tuple(it for it in self.trials if it not in known or known[it].open)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEdit:
    """What follows from an order."""

    changes: dict[str, FieldValue]
    """Fields below `spec`."""
    outcome: str
    """What holds then."""
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Steered:
    """An order that was carried out."""

    where: str
    edit: SweepEdit
    follows: str
    """Who goes by it."""


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
    changes = {field: to for field, to in edit.changes.items() if to != now[field]}
    return replace(edit, changes=changes)


def paused(order: Order) -> SweepEdit:
    """Saved, and waiting."""
    spec = order.sweep.spec
    if not order.trials:
        return SweepEdit(changes={"suspend": True}, outcome="all trials are to be saved and wait")
    _refuse_stopped(order, "paused")
    wanted = (*spec.paused_trials, *(it for it in order.open if it not in spec.paused_trials))
    return SweepEdit(changes={"pausedTrials": wanted}, outcome=_said(order.open, "paused"))


def stopped(order: Order) -> SweepEdit:
    """Ended for good."""
    spec = order.sweep.spec
    wanted = (*spec.stopped_trials, *(it for it in order.open if it not in spec.stopped_trials))
    changes: dict[str, FieldValue] = {
        "pausedTrials": tuple(it for it in spec.paused_trials if it not in wanted),
        "stoppedTrials": wanted,
    }
    return SweepEdit(changes=changes, outcome=_said(order.open, "stopped for good"))


def resumed(order: Order) -> SweepEdit:
    """Not paused any more."""
    spec = order.sweep.spec
    if not order.trials:
        changes: dict[str, FieldValue] = {"suspend": False, "pausedTrials": ()}
        return SweepEdit(changes=changes, outcome="all trials may go on")
    _refuse_stopped(order, "resumed")
    left = tuple(it for it in spec.paused_trials if it not in order.trials)
    waits = f"spec.suspend is true: no trial goes on before `trainrun sweep resume {order.where}`"
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


def _check_budget(order: Order) -> None:
    most = sweep_config(order.sweep).trials
    beyond = [it for it in order.trials if it >= most and it not in order.known.trials]
    if beyond:
        raise InvalidSpec(
            f"there is no {_named(beyond)}: the budget is {most} trials, which are counted from 0"
        )


def _notes(order: Order) -> Iterator[str]:
    known = order.known
    unknown = [it for it in order.trials if it not in known.trials]
    if known.trouble and unknown:
        yield known.trouble
    for number in order.trials:
        trial = known.trials.get(number)
        if trial is not None and not trial.open:
            yield f"trial {number} has ended ({trial.state})"
        elif trial is None and not known.trouble:
            yield f"trial {number} has not begun yet"
