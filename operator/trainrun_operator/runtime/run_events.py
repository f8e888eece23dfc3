"""Events of a run for its displays: plain lines, JSON, a live view; and repeated operator errors.

Layer: runtime. Emitting never blocks and never fails the pass that emits. The operator's own errors
are reported to the run's user as `OperatorError` and are never incidents: a failed pass decides
nothing, so it costs no budget; but a run without working passes must not look healthy. The first
pass that succeeds removes the condition.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

from trainrun._common.text import cleaned, shortened
from trainrun.contract.masking import masked
from trainrun_operator.api.run.status import Condition, TrainRunStatus
from trainrun_operator.core.run.boundary import Event, Observation, Plan, WorkerFact
from trainrun_operator.core.run.display import OPERATOR_ERROR, with_marks
from trainrun_operator.core.run.status_size import fitted
from trainrun_operator.worlds.base import World

PATIENT_TRIES = 8
"""Failed passes in a row before a transient error is reported: 22 s. An API server that has just
started refuses everything until it has read the roles."""
MAX_REPORTED = 5
"""Different errors that are reported until a pass succeeds."""
LONGEST_ERROR = 300
"""Characters of an exception that are reported."""
REMEDY = (
    "the run stays unchanged, nothing is charged to its budgets, and the operator retries at "
    "least every 10 s. "
)
OURS = "See the operator's log; grant the missing permission, or report the bug"
THEIRS = (
    "See the operator's log; grant the missing permission, or repair the webhook or policy that "
    "refuses"
)
"""What to do about a bug or the machine, and about the answer of an API server."""
Kind = Literal["PassFailed", "StatusRefused"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """An entry of the run's history (a Kubernetes Event in a cluster)."""

    time: datetime
    """UTC."""
    event: Event


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEnded:
    """A pass ended with nothing to write first: the current state of the run."""

    time: datetime
    """UTC."""
    plan: Plan
    workers: tuple[WorkerFact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One line that a worker printed, with its rank's prefix where a process printed it."""

    worker: str
    line: str


RunNews = RunEvent | PassEnded | Output


class EventSink(Protocol):
    """A receiver of a run's news."""

    def emit(self, news: RunNews) -> None:
        """Take one item; returns at once."""


class Fanout:
    """Passes everything on to several sinks, in order."""

    def __init__(self, sinks: Iterable[EventSink]) -> None:
        self._sinks = tuple(sinks)

    def emit(self, news: RunNews) -> None:
        """Pass it to every sink."""
        for sink in self._sinks:
            sink.emit(news)


@dataclass(kw_only=True, eq=False, repr=False)
class RepeatedErrors:
    """Reports the operator's repeated errors of one run, while we lead it."""

    world: World
    events: EventSink
    transient: tuple[type[Exception], ...] = ()
    """Errors of these classes may pass by themselves."""
    on_error: Callable[[Kind], None] = lambda _kind: None
    """Counts them."""

    def __post_init__(self) -> None:
        self._reported: set[str] = set()

    def over(self) -> None:
        """A pass has succeeded."""
        self._reported.clear()

    async def failed(self, error: Exception, *, tries: int, seen: Observation | None) -> None:
        """The last `tries` passes failed, the newest with `error`; `seen` is the stored status."""
        self.on_error("PassFailed")
        if isinstance(error, self.transient) and tries < PATIENT_TRIES:
            return
        message = f"a pass of the operator failed: {one_line(error)}; {self._remedy(error)}"
        new = self._report(message)
        if seen is None:
            return
        condition = seen.status.condition(OPERATOR_ERROR)
        # Keep the core's condition about agents: it would write it again, and both without end.
        if condition is None or (new and condition.reason == "PassFailed"):
            await self._write_condition(seen, message)

    def refused(self, error: Exception, *, tries: int) -> None:
        """The last `tries` writes of the status were refused: only an event can report it."""
        self.on_error("StatusRefused")
        if isinstance(error.__cause__, self.transient) and tries < PATIENT_TRIES:
            return
        self._report(f"{one_line(error)}; {self._remedy(error.__cause__)}")

    def _remedy(self, error: BaseException | None) -> str:
        return REMEDY + (THEIRS if isinstance(error, self.transient) else OURS)

    def _report(self, message: str) -> bool:
        if message in self._reported or len(self._reported) >= MAX_REPORTED:
            return False
        self._reported.add(message)
        event = Event(type="Warning", reason=OPERATOR_ERROR, message=message)
        self.events.emit(RunEvent(time=datetime.now(UTC), event=event))
        return True

    async def _write_condition(self, seen: Observation, message: str) -> None:
        if not seen.installation.may_lead(seen.status.holder):
            return  # do not write over another installation's run
        condition = Condition(
            type=OPERATOR_ERROR,
            status="True",
            reason="PassFailed",
            message=message,
            last_transition_time=seen.now,
            observed_generation=seen.generation,
        )
        status = with_marks(seen.status, condition)
        try:
            await self.world.write_status(fitted(status))
        except Exception as error:  # noqa: BLE001 - the event reports it, and the pass is retried
            _log.info("the condition %s cannot be written: %s", OPERATOR_ERROR, error)


def keep_operator_error(before: TrainRunStatus, after: TrainRunStatus) -> TrainRunStatus:
    """The status `after` of a pass that failed in part, with the OperatorError of `before`."""
    condition = before.condition(OPERATOR_ERROR)
    if condition is None or after.condition(OPERATOR_ERROR) is not None:
        return after
    return with_marks(after, condition)


def one_line(error: Exception) -> str:
    """Class, message and place of an error, with apparent secrets masked."""
    lines = cleaned(str(error)).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    text = shortened(masked(text), LONGEST_ERROR)
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    return f"{text} ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})"
