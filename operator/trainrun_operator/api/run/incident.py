"""What the status says of a loss, and of an attempt that is given up for it or for another reason.

Layer: api.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from trainrun_operator.api.run.handed import HandedCheckpoint
from trainrun_operator.api.run.status_part import StatusPart

BudgetName = Literal["failures", "preemptions", "startFailures", "none"]
Gain = Literal["Some", "None", "Unknown"]
EndingKind = Literal[
    "Incident", "Suspend", "TemplateChange", "Yielded", "TakenOver", "Reopened", "Restart"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident(StatusPart):
    """A loss of one or more workers of one attempt, with the cause that explains it best."""

    attempt: Annotated[int, Field(ge=1)]
    """The attempt that it ended."""
    cause: Annotated[str, Field(max_length=64)]
    """AppError, OutOfMemory, Preempted, NodeLost, StartFailed, ... (docs/failure-model.md)."""
    budget: BudgetName = "failures"
    """The budget it is charged to; provisional until it is settled."""
    counted: bool = False
    """Charged to its budget: true once, when it is settled, and then for ever."""
    slot: int | None = None
    """The culprit's slot."""
    rank: int | None = None
    """The culprit's rank, where one process is the culprit."""
    worker: Annotated[str, Field(max_length=253)] = ""
    """The culprit's worker (pod) name."""
    node: Annotated[str, Field(max_length=253)] = ""
    """The node it was on."""
    exit_code: int | None = None
    """Exit code of the culprit; 128 + number when a signal ended it."""
    container: Annotated[str, Field(max_length=63, exclude_if=not_)] = ""
    """The container in which the culprit ended, where one did."""
    exception: Annotated[tuple[str, ...], Field(max_length=16, exclude_if=not_)] = ()
    """The class of the exception that ended the culprit, and the bases of it; of older incidents
    the class alone."""
    raised_at: Annotated[str, Field(max_length=120, exclude_if=not_)] = ""
    """`loss.py:88`, where it was raised."""
    step: int | None = None
    """The highest step that its attempt had reported."""
    template: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """Hash of the pod template of its workers."""
    known_by: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """Why it was possible to know."""
    rule: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """The rule of failurePolicy that decided."""
    action: Annotated[str, Field(max_length=32, exclude_if=not_)] = ""
    """What this rule, or the script, asked for; absent: the budget of its cause decides."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """What happened, for a person: signal, exception, or the node's condition."""
    last_lines: Annotated[tuple[str, ...], Field(max_length=20, exclude_if=not_)] = ()
    """The culprit's last lines of output; absent where there are none."""
    hang: Annotated[str, Field(max_length=32, exclude_if=not_)] = ""
    """Of a hang, where its ranks stood: OneRankAway, SameCollective, WaitingForInput or Unknown."""
    evidence: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """The folder within the run's with the stacks of all ranks, where they were asked for."""
    collateral: bool = False
    """Only consequences of a loss elsewhere have been seen so far (broken collectives)."""
    time: datetime
    """When it was first seen."""
    detect_seconds: float | None = None
    """Seconds from the loss until the operator knew."""
    recovery_seconds: float | None = None
    """Seconds from knowing until the next attempt reported its first step."""
    restart_seconds: float | None = None
    """Seconds from knowing until the next attempt was started."""
    stages: Annotated[dict[str, float], Field(exclude_if=not_)] = field(default_factory=dict)
    """Of the last incident, the seconds of the parts of its recovery, in their order: detect,
    decide, stop, flush, pods, start, import, rendezvous, load, script, firstStep. They sum to
    detectSeconds and recoverySeconds; a part that took no time is absent."""
    warm: Annotated[int, Field(exclude_if=not_)] = 0
    """Processes of the next attempt that a standby interpreter became."""
    cold: Annotated[str, Field(max_length=300, exclude_if=not_)] = ""
    """Of the last incident, where workers.warmStart keeps standbys: why a process of the next
    attempt began without one. Absent where all began warm."""
    lost_steps: int | None = None
    """Steps done by the attempt beyond the checkpoint that the next one resumed from, as far as the
    operator has heard of them; absent where it cannot know."""
    resumed_from: HandedCheckpoint | None = None
    """The checkpoint that the next attempt resumed from."""
    opened: HandedCheckpoint | None = None
    """The checkpoint with which its attempt died before a first step, soon after it had asked for
    it; absent: it did not."""
    trial_of: HandedCheckpoint | None = None
    """The newer checkpoint which its attempt tried to do without; absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(StatusPart):
    """Attempt `attempt` is given up: its processes are stopped and the next one is prepared."""

    attempt: Annotated[int, Field(ge=0)]
    """The attempt that ends."""
    kind: EndingKind
    """Why; only an Incident is charged to a budget."""
    time: datetime
    """When this was decided."""
    grace_until: datetime | None = None
    """Its processes get SIGTERM and are killed then; absent: they are killed at once."""
    flush: Annotated[tuple[int, ...], Field(max_length=64)] = ()
    """Staged steps whose uploads are finished first."""
    flush_until: datetime | None = None
    """When they are given up; absent: after checkpoint.flushTimeout."""
    not_before: datetime | None = None
    """Backoff: the next attempt does not start earlier."""
    gain: Annotated[Gain, Field(exclude_if=lambda gain: gain == "Unknown")] = "Unknown"
    """What the attempt has gained: a step above any before or, where none was ever reported, a
    minute of training; None: nothing. Absent: nobody knows."""
    dismissed: Annotated[str, Field(max_length=256, exclude_if=not_)] = ""
    """Slots of the roster whose workers the operator deletes, as the bits of a hexadecimal number
    (of 1,024 slots in 256 characters): what becomes of them explains no incident."""

    def has_dismissed(self, slot: int) -> bool:
        """The operator deletes the worker of this slot."""
        return bool(int(self.dismissed or "0", 16) >> slot & 1)

    def dismissing(self, slots: Iterable[int]) -> str:
        """`dismissed`, with these slots."""
        return f"{sum(1 << slot for slot in set(slots)) | int(self.dismissed or '0', 16):x}"
