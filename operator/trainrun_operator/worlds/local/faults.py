"""Faults on demand: `kill rank=2 step=30`, `preempt rank=1 step=60 grace=20s`,
`node-loss rank=3 step=40`, `hang rank=0 after=30s`.

Layer: worlds/local. Each strikes once per `trainrun run`, when its rank has reported its step, or
some other rank has, since many ranks report nothing; or so long after its worker began to train,
for scripts that report no steps. A kill at a report, in a save or at a load is done by the rank's
agent, which sees it first; everything else by us. Who strikes makes the fault's mark: so it strikes
once, and it is known which never did.
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
"""Seconds from the report of another rank that the fault's own rank gets to report the step: most
ranks do, and are then hit in that step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault on the rank's process, worker or node, once a step >= `step` is reported; with
    `after` so long after its worker began to train."""

    kind: FaultKind
    rank: int
    step: int = 0
    after: float | None = None
    """Seconds."""
    grace: float = DEFAULT_GRACE
    """Seconds between the notice and the end (preempt)."""
    at: KillMoment = "report"
    """Of the step (kill)."""

    def __str__(self) -> str:
        """As it stands on the command line."""
        grace = f" grace={self.grace:g}s" if self.kind == "preempt" else ""
        at = f" at={self.at}" if self.at != "report" else ""
        moment = f"after={self.after:g}s" if self.after is not None else f"step={self.step}"
        return f"{self.kind} rank={self.rank} {moment}{grace}{at}"


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
    if "after" in values and ("step" in values or "at" in values):
        raise _wrong(text, "after= takes the place of step= and at=; give one of them")
    rank = _number(text, values, "rank")
    step = 0 if "after" in values else _number(text, values, "step")
    if rank >= world_size:
        raise _wrong(text, f"there is no rank {rank}: ranks are 0 to {world_size - 1}")
    grace = _seconds(text, "grace", values.get("grace", f"{DEFAULT_GRACE}s"))
    after = _seconds(text, "after", values["after"]) if "after" in values else None
    at = values.get("at", "report")
    if at not in MOMENTS:
        raise _wrong(text, f"at={at} is no moment of a step: use {', '.join(MOMENTS)}")
    return Fault(kind=known, rank=rank, step=step, after=after, grace=grace, at=MOMENTS[at])


def _number(text: str, values: dict[str, str], name: str) -> int:
    value = values.get(name, "")
    if not value.isascii() or not value.isdigit():
        raise _wrong(text, f"{name}={value} is missing or no number")
    return int(value)


def _seconds(text: str, name: str, value: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m)", value)
    if match is None:
        raise _wrong(text, f"{name}={value} is no duration such as 20s or 1m")
    return float(match[1]) * (60 if match[2] == "m" else 1)


def _wrong(text: str, what: str) -> InvalidSpec:
    return InvalidSpec(f'--fault "{text}": {what} (example: --fault "kill rank=0 step=30")')


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """A fault of this `trainrun run`."""

    fault: Fault
    slot: int
    mark: Path
    """There once the fault has struck."""

    def strike(self) -> bool:
        """Make the mark; says whether it is ours to strike."""
        return local_files.make_mark(self.mark)


class FaultPlan:
    """All faults of one `trainrun run`."""

    def __init__(self, faults: Iterable[Fault], *, processes_per_worker: int, folder: Path) -> None:
        """`folder` holds the marks; those of an earlier command are removed."""
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
        """Those that have not struck yet."""
        return [planned for planned in self._all if not planned.mark.exists()]

    @property
    def steps(self) -> tuple[int, ...]:
        """Those that agents tell at once."""
        faults = (planned.fault for planned in self.pending)
        return tuple(sorted({fault.step for fault in faults if fault.after is None}))

    def kills_of(self, slot: int) -> tuple[KillFault, ...]:
        """The kills that this slot's agent carries out when their rank reports."""
        return tuple(
            KillFault(rank=p.fault.rank, step=p.fault.step, at=p.fault.at, mark=str(p.mark))
            for p in self.pending
            if p.fault.kind == "kill" and p.slot == slot and p.fault.after is None
        )

    def grace_of(self, slot: int) -> float:
        """Seconds that this slot's agent gets between SIGTERM and its end."""
        preemptions = (p for p in self.pending if p.fault.kind == "preempt" and p.slot == slot)
        return next((p.fault.grace for p in preemptions), DEFAULT_GRACE)

    def reached(self, state: AgentState) -> Iterator[tuple[PlannedFault, float]]:
        """Pending faults whose step this heartbeat shows, with the seconds until they strike."""
        if state.phase != "Running":
            return  # its steps are those of an attempt that is over
        first = state.slot * self._per_worker
        for planned in self.pending:
            after = planned.fault.after
            if after is not None and planned.slot == state.slot:
                yield planned, after  # at each heartbeat: the first that finds it training strikes
            if after is not None or planned.fault.at != "report":
                continue  # only the agent sees these moments
            ranks = {
                rank
                for rank, step in enumerate(state.steps, start=first)
                if step is not None and step >= planned.fault.step
            }
            if ranks:
                yield planned, 0.0 if planned.fault.rank in ranks else OWN_TIME
