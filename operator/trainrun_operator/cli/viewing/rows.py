"""One run as a row of the list: from its status while there is one, else from its story.

Layer: cli; pure. A row is small: a page may hold thousands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from trainrun.contract.metrics import decode
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli import formatting
from trainrun_operator.cli.explaining.advice import on_node
from trainrun_operator.cli.explaining.life import Life
from trainrun_operator.cli.report.model import Tone
from trainrun_operator.cli.sources import Source
from trainrun_operator.cli.status import never_met
from trainrun_operator.core.run.boundary import NodeStrike
from trainrun_operator.core.run.times import goodput

NO_END = "no end recorded"
"""Phase of a run of which only its storage tells, and not how it ended."""
ABANDONED = "Stopped"
"""Phase of a local run whose process is gone."""
TONES: Mapping[str, Tone] = {
    "Failed": "bad",
    "Restarting": "note",
    "Preempting": "note",
    ABANDONED: "note",
    NO_END: "note",
    "Succeeded": "good",
}
Kind = Literal["cluster", "local", "stored"]
"""Where the row comes from: a TrainRun, files of this machine, a storage alone."""
MOST_STRIKES = 20
"""Incidents of one run that are kept."""
NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """What the list shows of one run."""

    kind: Kind
    name: str
    source: Source
    """Where its storage is."""
    namespace: str = ""
    """In the cluster: of its TrainRun, or the one that its storage is bound to."""
    uid: str = ""
    """Another run of the same name has another one; empty: not known."""
    sweep: bool = False
    """It is a sweep."""
    queue: str = ""
    phase: str = ""
    reason: str = ""
    tone: Tone = "plain"
    active: bool = False
    """It has not ended, as far as is known."""
    step: str = formatting.NO_STEP
    at_step: int = -1
    best: str = ""
    """The best value of a sweep."""
    goodput: float | None = None
    """From 0 to 1."""
    failures: int = 0
    limit: int = -1
    """Of failures; -1: none, or not known."""
    cause: str = ""
    """Of the newest incident."""
    saved: datetime | None = None
    """When its newest checkpoint was committed; None: none, or not known."""
    saved_step: int | None = None
    begun: datetime | None = None
    strikes: tuple[NodeStrike, ...] = ()
    """Its newest incidents whose node is known, oldest first."""
    avoided: str = ""
    """Which nodes its new workers avoid, and why."""
    version: str = ""
    """Differs for each version of its status."""
    attempt: int = 0
    ranks: int = 0
    """Its processes; 0: not known."""
    metrics: Mapping[str, object] = field(default_factory=dict)
    """Of the newest step."""

    @property
    def id(self) -> str:
        """Unique on the page."""
        kind = "sweep" if self.sweep and self.kind == "cluster" else self.kind
        where = f"{self.namespace}/{self.name}" if self.kind == "cluster" else self.uri
        return f"{kind}:{where}"

    @property
    def uri(self) -> str:
        """The URI of its folder."""
        return self.source.uri

    @property
    def place(self) -> str:
        """Its namespace, or its storage."""
        return self.namespace or self.source.storage

    @property
    def share(self) -> str:
        """Its goodput as text; empty: not known."""
        return "" if self.goodput is None else f"{100 * self.goodput:.1f} %"

    @property
    def failed(self) -> str:
        """Its failures as text, `2/5` with a limit; empty: none, and no limit."""
        limit = f"/{self.limit}" if self.limit >= 0 else ""
        return f"{self.failures}{limit}" if self.failures or limit else ""

    @property
    def record(self) -> dict[str, object]:
        """Its newest step, in the form of the records in its storage."""
        return {"attempt": self.attempt, "step": self.at_step, "rank": 0, "metrics": self.metrics}


def with_status(row: RunRow, status: TrainRunStatus, *, abandoned: bool = False) -> RunRow:
    """The row of a run with this status; `abandoned`: nothing leads it."""
    incidents, spent = status.all_incidents, status.goodput
    left = abandoned and not status.finished
    phase = ABANDONED if left else status.phase
    shown = status.posted or status.output or status.progress
    told = [({"node": i.node, "worker": i.worker, "cause": i.cause}, i.time) for i in incidents]
    saved, avoided = status.checkpoint, status.condition("NodesAvoided")
    return replace(
        row,
        phase=phase,
        reason="" if left else status.reason,
        tone="note" if never_met(status) else TONES.get(phase, "plain"),
        active=not status.finished and not left,
        step=formatting.step_of(status),
        at_step=-1 if shown.step is None else shown.step,
        goodput=goodput(spent.seconds) if spent is not None and spent.text else None,
        failures=status.failures.counted,
        limit=status.failures.limit,
        cause=incidents[-1].cause if incidents else "",
        saved=None if saved is None else saved.time,
        saved_step=None if saved is None else saved.step,
        begun=status.start_time,
        strikes=_strikes(row.name, told),
        avoided="" if avoided is None else avoided.message,
        attempt=status.attempt,
        ranks=0 if status.start_record is None else status.start_record.world_size,
        metrics=dict(shown.metrics),
    )


def with_story(row: RunRow, life: Life) -> RunRow:
    """The row of a run of which only its stored story is known."""
    if not life.chapters:
        phase = row.phase or NO_END
        return replace(row, phase=phase, tone=TONES.get(phase, "plain"))
    last, incidents = life.chapters[-1], life.incidents
    phase = NO_END
    if life.succeeded is not None:
        phase = "Succeeded" if life.succeeded else "Failed"
    elif last.end == "Suspend":
        phase = "Suspended"
    reached = life.reached
    charged = (c.incident for c in incidents if c.incident.get("counted"))
    return replace(
        row,
        phase=phase,
        reason="" if last.verdict == phase else last.verdict,
        tone=TONES.get(phase, "plain"),
        step=formatting.NO_STEP if reached is None else str(reached),
        at_step=-1 if reached is None else reached,
        goodput=life.goodput,
        failures=sum(incident.get("budget") == "failures" for incident in charged),
        cause=str(incidents[-1].incident.get("cause", "")) if incidents else "",
        saved_step=last.survived,
        begun=life.chapters[0].begun,
        strikes=_strikes(row.name, [(c.incident, c.ended or c.begun) for c in incidents]),
        attempt=last.attempt,
        ranks=max(chapter.world_size for chapter in life.chapters),
    )


def _strikes(
    run: str,
    incidents: Iterable[tuple[Mapping[str, object], datetime]],
) -> tuple[NodeStrike, ...]:
    """Those of a node; `trainrun run` has none."""
    found = (
        NodeStrike(node=node, run=run, cause=str(incident.get("cause", "")), time=time)
        for incident, time in incidents
        if (node := on_node(incident))
    )
    return tuple(found)[-MOST_STRIKES:]


def main_metric(metrics: Mapping[str, object]) -> tuple[str, float] | None:
    """The metric of the small curve: the first one called a loss, else the first number."""
    numbers = {
        name: float(value)
        for name, value in decode(metrics).items()
        if not isinstance(value, bool | str) and math.isfinite(value)
    }
    name = next((name for name in numbers if "loss" in name), next(iter(numbers), None))
    return None if name is None else (name, numbers[name])


SORTS = ("name", "phase", "step", "goodput", "failures", "cause", "checkpoint", "queue", "begun")
"""What the list can be ordered by."""


def sorted_rows(rows: Sequence[RunRow], by: str) -> list[RunRow]:
    """The rows by one of SORTS, `-` before it: backwards; else active ones first, then the
    newest."""
    ordered = sorted(rows, key=lambda row: (row.begun or NEVER, row.name), reverse=True)
    name = by.removeprefix("-")
    if name not in SORTS:
        return sorted(ordered, key=lambda row: not row.active)

    def key(row: RunRow) -> tuple[object, ...]:
        match name:
            case "step":
                return (row.at_step,)
            case "goodput":
                return (-1.0 if row.goodput is None else row.goodput,)
            case "checkpoint":
                return (row.saved or NEVER, row.saved_step or -1)
            case "begun":
                return (row.begun or NEVER,)
            case _:
                return (getattr(row, name),)

    return sorted(ordered, key=key, reverse=by.startswith("-"))


def matching(rows: Sequence[RunRow], words: str, phase: str) -> list[RunRow]:
    """The rows in this phase (empty: any) that have all of these words in what they show."""
    found = [row for row in rows if not phase or row.phase == phase]
    for word in words.lower().split():
        found = [row for row in found if word in _shown(row)]
    return found


def _shown(row: RunRow) -> str:
    nodes = " ".join(strike.node for strike in row.strikes)
    return f"{row.id} {row.uri} {row.phase} {row.reason} {row.cause} {row.queue} {nodes}".lower()
