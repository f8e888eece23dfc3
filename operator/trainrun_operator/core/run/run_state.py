"""The states of a run, which exclude each other; read from the status once per pass.

Layer: core; below `planner`, which passes each state to its stage. A state holds the data that
exists only in it, so its stage need not check for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from trainrun_operator.api.run.status import Condition, StartRecord, TrainRunStatus


@dataclass(frozen=True, slots=True)
class New:
    """No operator has accepted it yet."""


@dataclass(frozen=True, slots=True)
class Gathering:
    """No attempt runs: the next one is prepared, or the run is being suspended."""


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt has started, and has not been given up."""

    record: StartRecord


@dataclass(frozen=True, slots=True)
class Suspended:
    """Everything is stopped and saved."""

    since: datetime


@dataclass(frozen=True, slots=True)
class Finished:
    """It has its verdict: the condition Complete or Failed."""

    verdict: Condition


State = New | Gathering | Running | Suspended | Finished


def state_of(status: TrainRunStatus) -> State:
    """The state that this status describes."""
    true = {mark.type: mark for mark in status.conditions if mark.status == "True"}
    if verdict := true.get("Complete") or true.get("Failed"):
        return Finished(verdict)
    if status.start_record is not None and status.ending is None:
        return Running(status.start_record)
    if status.start_time is None:
        return New()
    mark = true.get("Suspended")
    return Suspended(mark.last_transition_time) if mark is not None else Gathering()
