"""What the judge of a life knows: the truth, what has been written so far, and what was wrong.

Layer: simulation. Only `Written` adds records and incidents; the other invariants read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.clock import Clock
    from tests.simulation.world.store import SimStore
    from tests.simulation.world.worker import SimWorker
    from trainrun_operator.api.run.status import StartRecord, TrainRunStatus
    from trainrun_operator.api.run.status_parts import Cause, Incident
    from trainrun_operator.core.run.causes import Limits
    from trainrun_operator.core.run.config import RunConfig


class Truth(Protocol):
    """What there really is."""

    config: RunConfig
    status: TrainRunStatus
    clock: Clock
    store: SimStore
    workers: dict[str, SimWorker]
    together: bool
    reports: bool

    def gang(self, attempt: int) -> list[SimAgent]:
        """All agents that ever started this attempt, dead ones too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """Something really happened to a worker."""

    slot: int
    created_for: int
    attempt: int
    """The one that its agent had started last."""
    causes: frozenset[Cause]
    """What operators may make of it."""
    lasting: bool
    """To the whole worker: to attempts as well that it has not started yet."""
    at: float
    until: float
    """When all of it has happened, and may be known."""


@dataclass(slots=True)
class Case:
    """One life before its judge."""

    world: Truth
    heartbeats_lost: bool
    """The network swallows heartbeats, which makes silence that nobody planned."""
    leaders_overlap: bool = False
    """Several have led at a time, which no Lease allows: each tells what it alone sees."""
    clocks_differ: bool = False
    """An operator's clock was wrong at some time: it may end any waiting early."""
    mistakes: list[str] = field(default_factory=list)
    records: dict[int, StartRecord] = field(default_factory=dict)
    """Every start record ever written, by attempt."""
    started_at: dict[int, float] = field(default_factory=dict)
    """When it was written, in virtual seconds as everywhere here."""
    opened_at: dict[int, float] = field(default_factory=dict)
    """When an attempt's incident was written first."""
    ended_at: dict[int, float] = field(default_factory=dict)
    """When an attempt was given up."""
    settled: dict[int, Incident] = field(default_factory=dict)
    ended_uncounted: set[int] = field(default_factory=set)
    strikes: list[Strike] = field(default_factory=list)
    limits: list[tuple[float, Limits]] = field(default_factory=list)
    """Those of the spec, and since when."""
    blind_until: float = 0.0
    """Operators have seen old pods, or none, until then: what they missed looks like silence."""
    forgiven: tuple[str, ...] = ()
    """Words of mistakes that are known and not taken note of."""
    disturbed_until: float = 0.0
    """When the last thing that may hinder the run was over."""

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.world.clock.now

    def wrong(self, what: str) -> None:
        """Take note of a violation."""
        if not any(words in what for words in self.forgiven):
            self.mistakes.append(f"at {self.now:.2f} s: {what}")

    def limits_since(self, moment: float) -> list[Limits]:
        """Those that held at some time since then."""
        last = max((i for i, (at, _) in enumerate(self.limits) if at <= moment), default=0)
        return [limits for _, limits in self.limits[last:]]

    def strikes_on(self, attempt: int) -> list[Strike]:
        """What has happened to the workers of an attempt, in that attempt."""
        record = self.records.get(attempt)
        if record is None:
            return []
        roster, begin = set(enumerate(record.roster)), self.started_at[attempt]
        return [
            s
            for s in self.strikes
            if (s.slot, s.created_for) in roster
            and (s.attempt == attempt or (s.lasting and s.until + LINGERS >= begin))
        ]


LINGERS = 20.0
"""Seconds after the end of a strike in which it may still be seen, as silence for example."""
