"""Faults on demand: `kill rank=2 step=30`, `preempt rank=1 step=60 grace=20s`,
`node-loss rank=3 step=40`, `hang rank=0 after=30s`.

Layer: worlds/local. Each strikes once per `trainrun run`: when its rank has reported the step, or
another rank has, since many ranks report nothing; where none does, when the output has shown it; or
a time after its worker began to train. The rank's agent carries out a kill at a report, in a save
or at a load, since it sees these moments first; this process carries out all other faults.
Whichever of them strikes creates the fault's mark file, so a fault strikes only once, and a fault
without a mark never struck.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from trainrun.contract import local_files
from trainrun.contract.agent_config import KillFault, KillMoment
from trainrun.contract.agent_state import AgentState
from trainrun.errors import InvalidSpec
from trainrun_operator.api.pod_template import DEFAULT_GRACE

FaultKind = Literal["kill", "preempt", "node-loss", "hang"]

FIELDS: dict[FaultKind, frozenset[str]] = {
    "kill": frozenset({"rank", "step", "after", "at"}),
    "preempt": frozenset({"rank", "step", "after", "grace"}),
    "node-loss": frozenset({"rank", "step", "after"}),
    "hang": frozenset({"rank", "step", "after"}),
}

MOMENTS: dict[str, KillMoment] = {moment: moment for moment in get_args(KillMoment)}

OWN_TIME = 1.0
"""Seconds that the fault's own rank has to report the step after another rank did: most ranks
report it, and are then hit in that step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a rank's process, worker or node, once a step >= `step` is reported, or `after`
    seconds after its worker began to train."""

    kind: FaultKind
    rank: int
    step: int = 0
    after: float | None = None
    """Seconds since its worker began to train; None: `step` counts."""
    grace: float = DEFAULT_GRACE
    """Seconds between the notice and the end (preempt)."""
    at: KillMoment = "report"
    """When to kill in the step (kill)."""

    def __str__(self) -> str:
        """The fault in the syntax of the command line."""
        grace = f" grace={self.grace:g}s" if self.kind == "preempt" else ""
        at = f" at={self.at}" if self.at != "report" else ""
        moment = f"after={self.after:g}s" if self.after is not None else f"step={self.step}"
        return f"{self.kind} rank={self.rank} {moment}{grace}{at}"


def parse_fault(text: str, *, world_size: int) -> Fault:
    """Parse a fault of the command line. Raises InvalidSpec that names the wrong word."""
    kind, *words = text.split() or [""]
    if kind not in FIELDS:
        raise _wrong(text, f"{kind!r} is not a fault; use {', '.join(FIELDS)}")
    known: FaultKind = kind
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in FIELDS[known]:
            allowed = ", ".join(f"{field}=..." for field in sorted(FIELDS[known], reverse=True))
            raise _wrong(text, f"{word!r} is not valid; {kind} takes {allowed}")
        values[name] = value
    if "after" in values and ("step" in values or "at" in values):
        raise _wrong(text, "after= replaces step= and at=; give only one of them")
    rank = _number(text, values, "rank")
    step = 0 if "after" in values else _number(text, values, "step")
    if rank >= world_size:
        raise _wrong(text, f"there is no rank {rank}: ranks are 0 to {world_size - 1}")
    grace = _seconds(text, "grace", values.get("grace", f"{DEFAULT_GRACE}s"))
    after = _seconds(text, "after", values["after"]) if "after" in values else None
    at = values.get("at", "report")
    if at not in MOMENTS:
        raise _wrong(text, f"at={at} is not valid; use {', '.join(MOMENTS)}")
    return Fault(kind=known, rank=rank, step=step, after=after, grace=grace, at=MOMENTS[at])


def _number(text: str, values: dict[str, str], name: str) -> int:
    value = values.get(name, "")
    if not value.isascii() or not value.isdigit():
        raise _wrong(text, f"{name}={value} needs a whole number")
    return int(value)


def _seconds(text: str, name: str, value: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m)", value)
    if match is None:
        raise _wrong(text, f"{name}={value} is not a duration such as 20s or 1m")
    return float(match[1]) * (60 if match[2] == "m" else 1)


def _wrong(text: str, what: str) -> InvalidSpec:
    return InvalidSpec(f'--fault "{text}": {what} (example: --fault "kill rank=0 step=30")')


def steps_of(state: AgentState, first: int) -> dict[int, int]:
    """The steps of a worker, whose lowest rank is `first`, by rank: reported, or if none is, shown
    by its output."""
    reported = {rank: s for rank, s in enumerate(state.steps, start=first) if s is not None}
    output = state.output
    if reported or output is None or output.step is None:
        return reported
    return {output.rank: output.step}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """A fault of this `trainrun run`."""

    fault: Fault
    slot: int
    mark: Path
    """A file that exists once the fault has struck."""

    def strike(self) -> bool:
        """Create the mark; True: the caller must strike, False: another process has struck."""
        return local_files.make_mark(self.mark)


class FaultPlan:
    """All faults of one `trainrun run`."""

    def __init__(self, faults: Iterable[Fault], *, processes_per_worker: int, folder: Path) -> None:
        """`folder` is for the marks; marks of an earlier command are removed."""
        shutil.rmtree(folder, ignore_errors=True)
        self._all = [
            PlannedFault(fault=f, slot=f.rank // processes_per_worker, mark=folder / f"{number}")
            for number, f in enumerate(faults)
        ]
        self._per_worker = processes_per_worker
        if self._all:
            folder.mkdir(parents=True)

    @property
    def pending(self) -> list[PlannedFault]:
        """Faults that have not struck yet."""
        return [planned for planned in self._all if not planned.mark.exists()]

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps that agents must report at once."""
        faults = (planned.fault for planned in self.pending)
        return tuple(sorted({fault.step for fault in faults if fault.after is None}))

    def kills_of(self, slot: int) -> tuple[KillFault, ...]:
        """The kills that this slot's agent carries out."""
        return tuple(
            KillFault(rank=p.fault.rank, step=p.fault.step, at=p.fault.at, mark=str(p.mark))
            for p in self.pending
            if p.fault.kind == "kill" and p.slot == slot and p.fault.after is None
        )

    def grace_of(self, slot: int) -> float:
        """Seconds between SIGTERM and the end of this slot's agent."""
        preemptions = (p for p in self.pending if p.fault.kind == "preempt" and p.slot == slot)
        return next((p.fault.grace for p in preemptions), DEFAULT_GRACE)

    def reached(self, state: AgentState) -> Iterator[tuple[PlannedFault, float]]:
        """Pending faults whose step this heartbeat reports, with the seconds until they strike."""
        if state.phase != "Running":
            return  # its steps belong to an ended attempt
        first = state.slot * self._per_worker
        for planned in self.pending:
            after = planned.fault.after
            if after is not None and planned.slot == state.slot:
                yield planned, after  # at each heartbeat: the first one due while it trains strikes
            if after is not None or planned.fault.at != "report":
                continue  # only the agent sees a save or a load
            shown = steps_of(state, first)
            ranks = {rank for rank, step in shown.items() if step >= planned.fault.step}
            if ranks:
                yield planned, 0.0 if planned.fault.rank in ranks else OWN_TIME
