"""Faults on demand: `kill rank=2 step=30`, `preempt rank=1 step=60 grace=20s`,
`node-loss rank=3 step=40`.

Layer: worlds/local. Each strikes once per `trainrun run`, when its rank has reached its step. A
kill is done by the rank's agent, which sees every step; the others at the next heartbeat.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from trainrun.errors import InvalidSpec
from trainrun.protocol import AgentState

FaultKind = Literal["kill", "preempt", "node-loss"]

FIELDS: dict[FaultKind, frozenset[str]] = {
    "kill": frozenset({"rank", "step"}),
    "preempt": frozenset({"rank", "step", "grace"}),
    "node-loss": frozenset({"rank", "step"}),
}

DEFAULT_GRACE = 30.0
"""Seconds; terminationGracePeriodSeconds of a pod that does not say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, struck when `rank` has reported a step >= `step`."""

    kind: FaultKind
    rank: int
    step: int
    grace: float = DEFAULT_GRACE
    """Seconds between the notice and the end (preempt)."""


def parse_fault(text: str, *, world_size: int) -> Fault:
    """Raises InvalidSpec naming the word that is wrong."""
    kind, *words = text.split() or [""]
    if kind not in FIELDS:
        raise _wrong(text, f"{kind!r} is no fault; use {', '.join(FIELDS)}")
    known: FaultKind = kind
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in FIELDS[known]:
            allowed = ", ".join(f"{field}=..." for field in sorted(FIELDS[known], reverse=True))
            raise _wrong(text, f"{word!r} is not understood; a {kind} takes {allowed}")
        values[name] = value
    rank, step = _number(text, values, "rank"), _number(text, values, "step")
    if rank >= world_size:
        raise _wrong(text, f"there is no rank {rank}: ranks are 0 to {world_size - 1}")
    grace = _seconds(text, values["grace"]) if "grace" in values else DEFAULT_GRACE
    return Fault(kind=known, rank=rank, step=step, grace=grace)


def _number(text: str, values: dict[str, str], name: str) -> int:
    value = values.get(name, "")
    if not value.isascii() or not value.isdigit():
        raise _wrong(text, f"{name}={value} is missing or no number")
    return int(value)


def _seconds(text: str, value: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m)", value)
    if match is None:
        raise _wrong(text, f"grace={value} is no duration such as 20s or 1m")
    return float(match[1]) * (60 if match[2] == "m" else 1)


def _wrong(text: str, what: str) -> InvalidSpec:
    return InvalidSpec(f'--fault "{text}": {what} (example: --fault "kill rank=0 step=30")')


class FaultPlan:
    """The faults that have not struck yet."""

    def __init__(self, faults: Iterable[Fault], *, processes_per_worker: int) -> None:
        self._pending = list(faults)
        self._per_worker = processes_per_worker

    def kills_of(self, slot: int) -> list[Fault]:
        """The kills that this slot's agent has to carry out."""
        return [f for f in self._pending if f.kind == "kill" and self._slot(f) == slot]

    def grace_of(self, slot: int) -> float:
        """Seconds that this slot's agent gets between SIGTERM and its end."""
        graces = (f.grace for f in self._pending if f.kind == "preempt" and self._slot(f) == slot)
        return next(graces, DEFAULT_GRACE)

    def struck_by(self, state: AgentState) -> list[Fault]:
        """Faults whose moment has come with this heartbeat; each is returned once.

        A kill is returned when its agent has done it, so that a later agent of the slot does not
        do it again.
        """
        struck = [f for f in self._pending if self._slot(f) == state.slot and _reached(f, state)]
        self._pending = [f for f in self._pending if f not in struck]
        return struck

    def _slot(self, fault: Fault) -> int:
        return fault.rank // self._per_worker


def _reached(fault: Fault, state: AgentState) -> bool:
    if fault.kind == "kill":
        return any(end.rank == fault.rank and end.signal == 9 for end in state.exits)
    local_rank = fault.rank % max(1, len(state.steps))
    step = state.steps[local_rank] if state.steps else None
    return step is not None and step >= fault.step
