"""What the agents of one run said last, and what they are to be answered.

Layer: runtime; no network here (see `agent_server`). Invariants: a heartbeat that arrives late
never replaces a newer one; an agent that was replaced by another of the same worker is not heard
again; a waiting request ends as soon as its answer differs from the one its agent has seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from trainrun.protocol import AgentState, Answer
from trainrun_operator.worlds.base import Heard

BEAT = 1.0
"""Seconds between two signs that our own loop turns."""
TOLERATED_LAG = 3.0
"""Seconds that it may be late with one."""


@dataclass(slots=True, kw_only=True)
class _Line:
    """The conversation with one worker's agent."""

    since: float
    """When we began to listen to it (monotonic)."""
    state: AgentState | None = None
    heard_at: float = 0.0
    replaced: set[str] = field(default_factory=set)
    """Earlier agents of the same worker: they are dead, whatever still arrives from them."""
    answer: Answer | None = None
    digest: str = ""
    waiting: asyncio.Future[None] | None = None
    waiting_seen: str = ""


class RunAgents:
    """The agents of one run."""

    def __init__(
        self,
        *,
        run_uid: str,
        on_news: Callable[[], None],
        on_progress: Callable[[], None],
        on_heartbeat: Callable[[AgentState], None] = lambda _state: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_news` is called when something that a decision depends on has changed, `on_progress`
        when only steps and metrics have, `on_heartbeat` with every heartbeat that is not late."""
        self.run_uid = run_uid
        self._on_news = on_news
        self._on_progress = on_progress
        self._on_heartbeat = on_heartbeat
        self._clock = clock
        self._listening_since = clock()
        self._beaten_at: float | None = None
        """When our loop last showed that it turns; None: nobody watches it."""
        self._lines: dict[str, _Line] = {}
        self.looked = False
        """Somebody has looked which workers there are: before that nobody is a stranger."""

    # --------------------------------------------------------------- for the reconciler

    def expect(self, workers: Collection[str]) -> None:
        """Workers that belong to the run: agents of all others are refused."""
        self.looked = True
        for name in [name for name in self._lines if name not in workers]:
            _release(self._lines.pop(name))
        for name in workers:
            self.admit(name)

    def admit(self, worker: str) -> None:
        """This worker belongs to the run, too."""
        if worker not in self._lines:
            self._lines[worker] = _Line(since=self._clock())

    def heard(self, worker: str) -> Heard:
        """What was heard of this worker's agent."""
        self._catch_up()
        line = self._lines.get(worker)
        if line is None:
            return Heard(state=None, silent_for=timedelta(0))
        last = line.since if line.state is None else line.heard_at
        # After an outage of our own nobody could be heard: silence counts from its end.
        silent = max(0.0, self._clock() - max(last, self._listening_since))
        state = line.state and aged(line.state, by=self._clock() - line.heard_at)
        return Heard(state=state, silent_for=timedelta(seconds=silent))

    @property
    def listening_for(self) -> timedelta:
        """How long agents could be heard without interruption."""
        self._catch_up()
        return timedelta(seconds=max(0.0, self._clock() - self._listening_since))

    def restart_listening(self, *, grace: float = 0.0) -> None:
        """We could not hear for a while: deadlines start anew, `grace` seconds from now."""
        self._listening_since = self._clock() + grace

    def beat(self) -> None:
        """Our loop turns: to be called every BEAT seconds, from the first call on."""
        self._catch_up()
        self._beaten_at = self._clock()

    def _catch_up(self) -> None:
        # Asked for with every judgement: after a pause of this process a pass over the run may come
        # before the next beat, and before what agents said meanwhile is read.
        now = self._clock()
        if self._beaten_at is not None and now - self._beaten_at > BEAT + TOLERATED_LAG:
            self._beaten_at = now
            self._listening_since = max(self._listening_since, now)

    def publish(self, answers: Mapping[str, Answer]) -> None:
        """Replace all answers; whoever waits for a different one gets it at once."""
        for name, line in self._lines.items():
            answer = answers.get(name)
            if answer != line.answer:
                line.answer = answer
                line.digest = "" if answer is None else answer.digest
            if answer is not None and line.digest != line.waiting_seen:
                _release(line)

    # ------------------------------------------------------------- for the agent server

    def knows(self, worker: str) -> bool:
        """Whether this worker belongs to the run."""
        return worker in self._lines

    def hear(self, state: AgentState) -> bool:
        """Keep the state of a known worker's agent; False when its agent has been replaced."""
        line = self._lines[state.worker]
        if state.agent in line.replaced:
            return False
        before = line.state
        if before is not None and before.agent != state.agent:
            line.replaced.add(before.agent)
            line.answer = None  # it was meant for the one before
        elif before is not None and state.sequence <= before.sequence:
            return True  # late or repeated: answered, but not believed
        line.state, line.heard_at = state, self._clock()
        self._on_heartbeat(state)
        if before is None or essence(before) != essence(state):
            self._on_news()
        elif (before.steps, before.metrics) != (state.steps, state.metrics):
            self._on_progress()
        return True

    async def answer(self, state: AgentState, *, wait: float) -> Answer | None:
        """The answer for this agent; with `wait`, held back until it differs from `state.seen`.

        `wait` is in seconds. None: nothing is known yet that the agent should do.
        """
        line = self._lines[state.worker]
        if wait > 0 and (line.answer is None or line.digest == state.seen):
            _release(line)  # a newer request of the same agent ends the older one
            line.waiting = asyncio.get_running_loop().create_future()
            line.waiting_seen = state.seen
            await asyncio.wait([line.waiting], timeout=wait)
        return line.answer

    def close(self) -> None:
        """Let all waiting requests go."""
        for line in self._lines.values():
            _release(line)


def _release(line: _Line) -> None:
    if line.waiting is not None and not line.waiting.done():
        line.waiting.set_result(None)
    line.waiting = None


def essence(state: AgentState) -> AgentState:
    """The state without what changes all the time: ages, sequence, progress.

    Two states with the same essence lead to the same decision (timeouts aside).
    """
    return replace(
        state,
        sequence=0,
        seen="",
        stall=0.0,
        steps=(),
        metrics={},
        spawned=None if state.spawned is None else 0.0,
        first_step=None if state.first_step is None else 0.0,
        stepped=None if state.stepped is None else 0.0,
        exits=tuple(replace(ended, age=0.0) for ended in state.exits),
        staged=tuple(replace(step, age=0.0) for step in state.staged),
        committed=state.committed and replace(state.committed, age=0.0),
        notice=state.notice and replace(state.notice, age=0.0, remaining=None),
        resolution=state.resolution and replace(state.resolution, age=0.0),
    )


def aged(state: AgentState, *, by: float) -> AgentState:
    """The state as its agent would send it now: ages are counted from when it was sent.

    Without this, of two ranks that died seconds apart the one heard last would look like the first.
    """
    notice = state.notice
    if notice is not None:
        left = None if notice.remaining is None else max(0.0, notice.remaining - by)
        notice = replace(notice, age=notice.age + by, remaining=left)
    return replace(
        state,
        exits=tuple(replace(ended, age=ended.age + by) for ended in state.exits),
        staged=tuple(replace(step, age=step.age + by) for step in state.staged),
        committed=state.committed and replace(state.committed, age=state.committed.age + by),
        resolution=state.resolution and replace(state.resolution, age=state.resolution.age + by),
        notice=notice,
        spawned=None if state.spawned is None else state.spawned + by,
        first_step=None if state.first_step is None else state.first_step + by,
        stepped=None if state.stepped is None else state.stepped + by,
    )
