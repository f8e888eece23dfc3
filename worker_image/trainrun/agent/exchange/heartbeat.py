"""The exchange with the operator: a long poll waits for orders, and news end it for the next one.

Layer: agent. Level-triggered: each heartbeat carries the whole state, each answer the whole
desired state, so nothing is lost when either side forgets. Every error leads to a new connection
to the next operator, then after a pause; training goes on meanwhile. Invariant: one connection,
since each costs the operator memory.

The way through the Service is made by the node's kube-proxy, which may not know of a new leader.
Every operator says where all of them are, with each response. Invariants: the Service comes first,
and for a moment alone; a way that leads to the leader is kept; all are tried before there is a
pause.

A state that is too large for the operator is told in part, since a heartbeat that is refused would
be refused for ever, and its worker be lost for silence. Numbers, codes and steps always go; texts
and metrics are left out, those that matter least first, and a problem says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainrun._common.backoff import Backoff
from trainrun.agent import background
from trainrun.agent.exchange.http import HttpClient, HttpError, Interrupt, Response
from trainrun.contract.agent_state import AgentState, Problem, ProcessExit
from trainrun.contract.answer import POLL_INTERVAL, PROGRESS_INTERVAL, Answer
from trainrun.contract.evidence import RankEvidence
from trainrun.contract.wire import (
    HEARTBEAT_PATH,
    LARGEST_HEARTBEAT,
    OPERATORS_HEADER,
    MalformedMessage,
)

LOG = logging.getLogger("trainrun.agent")

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between tries while the operator cannot be reached; the longest is at most a sixth of the
time after which the operator takes us for lost, so that the next leader is found in time."""
UNWANTED_PAUSE = 10.0
"""Seconds after an operator said that it cannot accept this agent."""
FINAL_ANSWERS = 3
"""So many answers in a row that this worker does not belong to the run any more, or that its run is
gone, are final: only a leader that knows all runs and workers says so."""
REFUSED_SECONDS = 300.0
"""For so long an operator has said that this pod is none of its workers: it ends then."""
REPLACED_PAUSE, REPLACED_SECONDS = 5.0, 10.0
GONE_PAUSE, GONE_SECONDS = 1.0, 2.0
"""Seconds between two tries after such an answer, and that they must span."""
EARLY_PAUSE = 0.5
"""Seconds after a second poll in a row that was answered early and with nothing new."""
TOO_LARGE = 413
EARLIER = (0.8, 0.95)
"""Part of a poll's time after which it ends, drawn anew for each: agents that came to a new leader
together do not stay together, and one that is well is heard before the operator wonders."""
POST_TIMEOUT = 10.0
SHORTEST_TIMEOUT = 4.0
"""Seconds for an exchange, besides what the server was asked to wait: at most and at least; between
them a third of the time after which the operator takes us for lost."""
STOP_TIME = 1.0
"""Seconds for the exchange to end."""
SMALLEST_LIMIT = 16 * 1024
"""Bytes: however often a heartbeat is refused for its size, no less is told."""
EARLY_TICK = 0.1
"""Seconds that a tick may be early."""


SERVICE = ""
"""The way by the address that the configuration names."""
SERVICE_SECONDS = 2.0
"""So long the Service alone is tried: most hand-overs take no longer, and a fleet that knocks at
the next leader's door before it leads would only hold it up."""
MOST_OPERATORS = 8
"""Addresses that are kept."""


@dataclass(slots=True)
class OperatorAddresses:
    """The ways of one agent to the leader."""

    operators: tuple[str, ...] = ()
    """`address:port` of each, the leader first, as far as it is known."""
    way: str = SERVICE
    """The one to use now."""
    _tried: set[str] = field(default_factory=set)
    """Those that have led nowhere since the last answer, or the last pause."""
    _lost_since: float | None = None
    """Since when no leader is found."""

    def learn(self, operators: tuple[str, ...]) -> None:
        """An operator has said where all of them are; those that say nothing change nothing."""
        if operators:
            self.operators = operators[:MOST_OPERATORS]

    def found(self) -> None:
        """The leader answers on this way."""
        self._tried.clear()
        self._lost_since = None

    def lost(self, since: float, now: float) -> bool:
        """This way has led to no leader since then, in monotonic seconds.

        True: there is another one, to be tried at once; False: after a pause, from the first on.
        """
        if self._lost_since is None:
            self._lost_since = since
        self._tried.add(self.way)
        beside = self.operators if now - self._lost_since >= SERVICE_SECONDS else ()
        untried = [way for way in (SERVICE, *beside) if way not in self._tried]
        if not untried:
            self._tried.clear()
        self.way = untried[0] if untried else SERVICE
        return bool(untried)


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """The exchange of one agent."""

    connect: Callable[[str], HttpClient]
    """Makes a client for one of the `ways`."""
    state: Callable[[], AgentState]
    """The present state, with the next sequence number."""
    apply: Callable[[Answer], bool]
    """Takes an answer; says whether it brought anything new."""
    replaced: Callable[[str], None] = lambda _message: None
    """Called once the operator has said for good that this worker is not of the run any more."""
    run_gone: Callable[[str], None] = lambda _message: None
    """Called once the operator has said for good that the run is gone as a whole."""
    heartbeat_timeout: float = 3 * POLL_INTERVAL
    """Seconds after which the operator takes us for lost."""
    ways: OperatorAddresses = field(default_factory=OperatorAddresses)
    last_answer: float = field(default_factory=time.monotonic)
    """When the operator last answered, on the monotonic clock."""
    _limit: int = LARGEST_HEARTBEAT
    """Bytes of a heartbeat that the operator, and what stands before it, takes."""
    _poll: float = POLL_INTERVAL
    _progress_interval: float = PROGRESS_INTERVAL
    _applied: int = 0
    """Answers that brought something new."""
    _due: asyncio.Event = field(default_factory=asyncio.Event)
    _moved: bool = False
    _last_sent: float = 0.0
    _complaints: set[str] = field(default_factory=set)
    """What was logged since the operator last answered."""
    _status: int = 0
    """Of the last answer."""
    _since: list[float] = field(default_factory=list)
    """When each of the last answers with this status came; nothing else came in between."""
    _stopped: bool = False
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first heartbeat goes out at once."""
        self._task = background.run(self._talk())

    def news(self) -> None:
        """Something changed that the operator waits for: tell it in this turn of the loop."""
        self._due.set()

    def progress(self) -> None:
        """Steps or metrics changed: tell it as often as the operator wants to hear it."""
        self._moved = True

    def tick(self, now: float) -> None:
        """Called about once a second."""
        if self._moved and now - self._last_sent >= self._progress_interval - EARLY_TICK:
            self._due.set()

    async def post_last(self, timeout: float) -> None:
        """Stop, and tell the final state, if the operator can be reached."""
        await self.stop()
        client = self.connect(self.ways.way)
        try:
            await client.post(HEARTBEAT_PATH, self._body(), timeout)
        except HttpError as error:
            LOG.info("the last state could not be sent: %s", error)
        finally:
            client.close()

    async def stop(self) -> None:
        """Stop."""
        # Python before 3.12 loses a cancellation that meets the end of `wait_for`.
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=STOP_TIME)

    async def _talk(self) -> None:
        client, backoff = self.connect(self.ways.way), Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        in_vain = 0
        while not self._stopped:
            wait, begun, applied = self._wait, time.monotonic(), self._applied
            self._due.clear()
            self._moved, self._last_sent = False, begun
            pause = await self._exchange(client, wait, backoff)
            if pause is not None:
                # A fresh look-up, or another operator: the leader may be another one.
                client.close()
                client = self.connect(self.ways.way)
                await asyncio.sleep(pause)
                continue
            early = time.monotonic() - begun < wait / 2 and not self._due.is_set()
            in_vain = in_vain + 1 if early and applied == self._applied else 0
            # An operator that does not hold answers back must not be asked all the time.
            if in_vain > 1:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._due.wait(), EARLY_PAUSE)

    @property
    def _wait(self) -> float:
        longest = min(self._poll, POLL_INTERVAL, self.heartbeat_timeout / 3)
        return longest * random.uniform(*EARLIER)

    @property
    def _patience(self) -> float:
        return max(SHORTEST_TIMEOUT, min(POST_TIMEOUT, self.heartbeat_timeout / 3))

    async def _exchange(self, client: HttpClient, wait: float, backoff: Backoff) -> float | None:
        """One heartbeat and its answer; returns the pause before the next try, None when it went
        well."""
        path = f"{HEARTBEAT_PATH}?wait={wait:.2f}&interruptible=1"
        interrupt = Interrupt(event=self._due, patience=self._patience)
        body, timeout = self._body(), wait + self._patience
        since = None if client.connected else time.monotonic()
        try:
            response = await client.post(path, body, timeout, interrupt=interrupt)
            if response.status == TOO_LARGE:
                self._limit = max(SMALLEST_LIMIT, len(body) // 2)
            return self._take(response, backoff)
        except (HttpError, MalformedMessage) as error:
            self._since.clear()
            self._complain(f"the operator cannot be reached: {error}")
            return self._lost(backoff, since)

    def _lost(self, backoff: Backoff, since: float | None = None) -> float:
        """No leader on this way, since then or now; returns the pause before the next try."""
        now = time.monotonic()
        if self.ways.lost(now if since is None else since, now):
            return 0.0
        return min(backoff.next(), self.heartbeat_timeout / 6)

    def _body(self) -> bytes:
        return fitted(self.state(), self._limit).encode()

    def _take(self, response: Response, backoff: Backoff) -> float | None:
        """Apply an answer; returns the pause before the next try. Raises MalformedMessage."""
        text = response.body.decode(errors="replace")[:500]
        operators = response.headers.get(OPERATORS_HEADER.lower(), "").split(",")
        self.ways.learn(tuple(filter(None, map(str.strip, operators))))
        if response.status != self._status:
            self._status, self._since = response.status, []
        match response.status:
            case 200 | 204:
                backoff.reset()
                self.ways.found()
                self.last_answer = time.monotonic()
                if self._complaints:
                    where = f" at {self.ways.way}" if self.ways.way else ""
                    LOG.info("the operator answers again%s", where)
                    self._complaints.clear()
                if response.status == 200:
                    answer = Answer.from_json(response.body)
                    self._poll = max(0.1, answer.poll)
                    self._progress_interval = max(PROGRESS_INTERVAL, answer.progress)
                    if answer.settings is not None:
                        self.heartbeat_timeout = answer.settings.heartbeat_timeout
                    self._applied += self.apply(answer)
                return None
            case 503:
                return self._lost(backoff)
            case 401 | 403:
                self._complain(f"the operator does not accept this agent: {text}")
                # Not 401: that the API server does not accept a token may be its own trouble.
                if response.status == 403 and self._is_final(REFUSED_SECONDS):
                    self.replaced(text)
                return UNWANTED_PAUSE
            case 409:
                self._complain(f"the operator rejects this agent: {text}")
                if self._is_final(REPLACED_SECONDS):
                    self.replaced(text)
                return REPLACED_PAUSE
            case 410:
                self._complain(f"the operator rejects this agent: {text}")
                if self._is_final(GONE_SECONDS):
                    self.run_gone(text)
                return GONE_PAUSE
            case 426:
                self._complain(f"the versions of operator and agent do not fit: {text}")
                return UNWANTED_PAUSE
            case _:
                self._complain(f"the operator answered {response.status}: {text}")
                return self._lost(backoff) if response.status >= 500 else backoff.next()

    def _is_final(self, seconds: float) -> bool:
        self._since.append(time.monotonic())
        return len(self._since) >= FINAL_ANSWERS and self._since[-1] - self._since[0] >= seconds

    def _complain(self, text: str) -> None:
        if text not in self._complaints:
            LOG.warning("%s", text)
            self._complaints.add(text)


FEW_LINES, SHORT_LINE = 5, 100
"""Last lines of an ended process, and characters of each, where there is no room for all."""
FEW_FRAMES = 4
"""Frames of a rank that stands still, the innermost ones, where there is no room for more."""
FEW_KINDS = 4
"""Classes of an exception, its own first, where there is no room for more."""
SHORT_TEXT = 200
"""Characters of an exception or a problem where there is no room for more."""


def fitted(state: AgentState, limit: int) -> str:
    """The state as JSON: of at most `limit` bytes, unless it has nothing left to leave out."""
    whole, left_out = state, []
    text = state.to_json()
    for cut, what in CUTS:
        if len(text) <= limit:
            break
        left_out.append(what)
        state = cut(state)
        told = _too_large(whole, limit, left_out)
        text = replace(state, problems=(*state.problems, told)).to_json()
    return text


def _too_large(state: AgentState, limit: int, left_out: list[str]) -> Problem:
    return Problem(
        type="HeartbeatTooLarge",
        reason="Shortened",
        message=f"what worker {state.worker} has to tell is larger than the {limit} bytes that the "
        f"operator takes; left out: {', '.join(left_out)}. The worker's output has all lines; "
        "report fewer or shorter metrics",
    )


def _without_metrics(state: AgentState) -> AgentState:
    posted = state.posted
    shown = replace(posted, metrics={}) if posted is not None else None
    return replace(state, metrics={}, posted=shown)


def _places_alone(state: AgentState) -> AgentState:
    def short(rank: RankEvidence) -> RankEvidence:
        return replace(rank, stack=rank.stack[:FEW_FRAMES], last_lines=())

    found = state.evidence
    if found is None:
        return state
    return replace(state, evidence=replace(found, ranks=tuple(map(short, found.ranks))))


def _few_lines(state: AgentState) -> AgentState:
    def short(end: ProcessExit) -> ProcessExit:
        lines = (line[:SHORT_LINE] for line in end.last_lines[-FEW_LINES:])
        return replace(end, last_lines=tuple(lines))

    return replace(state, exits=tuple(map(short, state.exits)))


def _short_texts(state: AgentState) -> AgentState:
    return replace(
        state,
        exits=tuple(
            replace(
                end,
                last_lines=(),
                exception=end.exception[:SHORT_TEXT],
                kinds=end.kinds[:FEW_KINDS],
            )
            for end in state.exits
        ),
        problems=tuple(replace(p, message=p.message[:SHORT_TEXT]) for p in state.problems),
    )


CUTS: tuple[tuple[Callable[[AgentState], AgentState], str], ...] = (
    (_without_metrics, "metrics"),
    (_places_alone, "most of the stacks of ranks that stand still"),
    (_few_lines, "most of the last lines of processes"),
    (_short_texts, "their last lines, and the ends of long texts"),
)
"""Least important first, with what is left out."""
