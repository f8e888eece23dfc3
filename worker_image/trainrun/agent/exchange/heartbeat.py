"""The exchange with the operator: a long poll waits for orders; news end it and start the next.

Layer: agent. Level-triggered: each heartbeat carries the whole state, each answer the whole desired
state, so nothing is lost if either side forgets. After every error the agent connects to the next
operator, and pauses after the last one; training continues meanwhile. Invariant: one connection,
since each costs the operator memory.

kube-proxy on the node routes the Service and may not know a new leader yet, so every response lists
the addresses of all operators. Invariants: the agent tries the Service first, and at first only
that; it keeps an address that leads to the leader; it tries all addresses before it pauses.

If the state is too large for the operator, the agent sends part of it: a refused heartbeat would be
refused again each time, and the worker lost for silence. Numbers, codes and steps are always sent;
texts and metrics are left out, the least important first, and a problem says so.
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
"""Seconds between tries while the operator cannot be reached. The longest is at most a sixth of the
heartbeat timeout, so that the agent finds the next leader in time."""
UNWANTED_PAUSE = 10.0
"""Seconds after an operator refused this agent."""
FINAL_ANSWERS = 3
"""After this many answers in a row, a rejection of this worker or a deletion of its run is final:
only a leader that knows all runs and workers answers so."""
REFUSED_SECONDS = 300.0
"""Seconds for which operators must reject this pod as not theirs before it ends."""
REPLACED_PAUSE, REPLACED_SECONDS = 5.0, 10.0
GONE_PAUSE, GONE_SECONDS = 1.0, 2.0
"""Seconds between two tries after such an answer, and the seconds that these must span."""
EARLY_PAUSE = 0.5
"""Seconds to pause from the second early and empty answer in a row on."""
TOO_LARGE = 413
EARLIER = (0.8, 0.95)
"""Part of a poll's time after which it ends, drawn from this range for each: agents that reached a
new leader together spread out, and a healthy agent reports before the operator expects it."""
POST_TIMEOUT = 10.0
SHORTEST_TIMEOUT = 4.0
"""Longest and shortest seconds for an exchange, in addition to the wait requested from the server;
in between, a third of the heartbeat timeout."""
STOP_TIME = 1.0
"""Seconds for the exchange to end."""
SMALLEST_LIMIT = 16 * 1024
"""Bytes: the size limit never falls below this, however often a heartbeat is refused."""
EARLY_TICK = 0.1
"""Seconds that a tick may be early."""


SERVICE = ""
"""Stands for the address in the configuration."""
SERVICE_SECONDS = 2.0
"""Seconds to try only the Service: most hand-overs take no longer, and a fleet that contacts the
next leader before it leads would only slow it down."""
MOST_OPERATORS = 8
"""Addresses that are kept."""


@dataclass(slots=True)
class OperatorAddresses:
    """The addresses at which one agent may reach the leader."""

    operators: tuple[str, ...] = ()
    """`address:port` of each, the leader first if it is known."""
    way: str = SERVICE
    """The one to use now."""
    _tried: set[str] = field(default_factory=set)
    """Those that failed since the last answer or the last pause."""
    _lost_since: float | None = None
    """Since when no leader has answered."""

    def learn(self, operators: tuple[str, ...]) -> None:
        """Take the operators' addresses from a response; an empty list changes nothing."""
        if operators:
            self.operators = operators[:MOST_OPERATORS]

    def found(self) -> None:
        """The leader has answered at this address."""
        self._tried.clear()
        self._lost_since = None

    def lost(self, since: float, now: float) -> bool:
        """No leader has answered at this address since `since`, in monotonic seconds.

        True: try the next address at once; False: pause, then start from the first one.
        """
        if self._lost_since is None:
            self._lost_since = since
        self._tried.add(self.way)
        others = self.operators if now - self._lost_since >= SERVICE_SECONDS else ()
        untried = [way for way in (SERVICE, *others) if way not in self._tried]
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
    """Returns the current state, with the next sequence number."""
    apply: Callable[[Answer], bool]
    """Takes an answer; returns whether it was new."""
    replaced: Callable[[str], None] = lambda _message: None
    """Called once the operator has finally rejected this worker."""
    run_gone: Callable[[str], None] = lambda _message: None
    """Called once the operator has finally reported the run as deleted."""
    heartbeat_timeout: float = 3 * POLL_INTERVAL
    """Seconds of silence after which the operator considers this worker lost."""
    ways: OperatorAddresses = field(default_factory=OperatorAddresses)
    last_answer: float = field(default_factory=time.monotonic)
    """When the operator last answered, on the monotonic clock."""
    _limit: int = LARGEST_HEARTBEAT
    """Bytes of a heartbeat that the operator, and any proxy before it, accepts."""
    _poll: float = POLL_INTERVAL
    _progress_interval: float = PROGRESS_INTERVAL
    _applied: int = 0
    """Count of answers that were new."""
    _due: asyncio.Event = field(default_factory=asyncio.Event)
    _moved: bool = False
    _last_sent: float = 0.0
    _logged: set[str] = field(default_factory=set)
    """Messages logged since the operator last answered."""
    _status: int = 0
    """Of the last answer."""
    _since: list[float] = field(default_factory=list)
    """Arrival times of the last answers in a row with this status."""
    _stopped: bool = False
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start; the first heartbeat is sent at once."""
        self._task = background.run(self._talk())

    def news(self) -> None:
        """Something changed that the operator waits for: report it in this turn of the loop."""
        self._due.set()

    def progress(self) -> None:
        """Steps or metrics changed: report them at the operator's progress interval."""
        self._moved = True

    def tick(self, now: float) -> None:
        """Called about once a second."""
        if self._moved and now - self._last_sent >= self._progress_interval - EARLY_TICK:
            self._due.set()

    async def post_last(self, timeout: float) -> None:
        """Stop, and send the final state if the operator can be reached."""
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
        # Python before 3.12 loses a cancellation that coincides with the end of `wait_for`.
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=STOP_TIME)

    async def _talk(self) -> None:
        client, backoff = self.connect(self.ways.way), Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        empty_answers = 0
        while not self._stopped:
            wait, begun, applied = self._wait, time.monotonic(), self._applied
            self._due.clear()
            self._moved, self._last_sent = False, begun
            pause = await self._exchange(client, wait, backoff)
            if pause is not None:
                # Resolve the name again or use another operator: the leader may have changed.
                client.close()
                client = self.connect(self.ways.way)
                await asyncio.sleep(pause)
                continue
            early = time.monotonic() - begun < wait / 2 and not self._due.is_set()
            empty_answers = empty_answers + 1 if early and applied == self._applied else 0
            # Do not flood an operator that does not hold answers back.
            if empty_answers > 1:
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
        """Send one heartbeat and apply its answer; returns the pause before the next try, None
        after a success."""
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
            self._warn_once(f"the operator cannot be reached: {error}")
            return self._lost(backoff, since)

    def _lost(self, backoff: Backoff, since: float | None = None) -> float:
        """No leader at this address, since then or now; returns the pause before the next try."""
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
                if self._logged:
                    where = f" at {self.ways.way}" if self.ways.way else ""
                    LOG.info("the operator answers again%s", where)
                    self._logged.clear()
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
                self._warn_once(f"the operator does not accept this agent: {text}")
                # Not 401: the API server may refuse a token for reasons of its own.
                if response.status == 403 and self._is_final(REFUSED_SECONDS):
                    self.replaced(text)
                return UNWANTED_PAUSE
            case 409:
                self._warn_once(f"the operator rejects this agent: {text}")
                if self._is_final(REPLACED_SECONDS):
                    self.replaced(text)
                return REPLACED_PAUSE
            case 410:
                self._warn_once(f"the operator rejects this agent: {text}")
                if self._is_final(GONE_SECONDS):
                    self.run_gone(text)
                return GONE_PAUSE
            case 426:
                self._warn_once(f"operator and agent have incompatible versions: {text}")
                return UNWANTED_PAUSE
            case _:
                self._warn_once(f"the operator answered {response.status}: {text}")
                return self._lost(backoff) if response.status >= 500 else backoff.next()

    def _is_final(self, seconds: float) -> bool:
        self._since.append(time.monotonic())
        return len(self._since) >= FINAL_ANSWERS and self._since[-1] - self._since[0] >= seconds

    def _warn_once(self, text: str) -> None:
        if text not in self._logged:
            LOG.warning("%s", text)
            self._logged.add(text)


FEW_LINES, SHORT_LINE = 5, 100
"""Last lines of an ended process, and characters of each, in a shortened heartbeat."""
FEW_FRAMES = 4
"""Innermost frames of a hanging rank in a shortened heartbeat."""
FEW_KINDS = 4
"""Classes of an exception, its own first, in a shortened heartbeat."""
SHORT_TEXT = 200
"""Characters of an exception or a problem in a shortened heartbeat."""


def fitted(state: AgentState, limit: int) -> str:
    """The state as JSON, cut to `limit` bytes as far as it has parts to leave out."""
    whole, left_out = state, []
    text = state.to_json()
    for cut, what in CUTS:
        if len(text) <= limit:
            break
        left_out.append(what)
        state = cut(state)
        problem = _too_large(whole, limit, left_out)
        text = replace(state, problems=(*state.problems, problem)).to_json()
    return text


def _too_large(state: AgentState, limit: int, left_out: list[str]) -> Problem:
    return Problem(
        type="HeartbeatTooLarge",
        reason="Shortened",
        message=f"the heartbeat of worker {state.worker} exceeds the {limit} bytes that the "
        f"operator accepts; left out: {', '.join(left_out)}. All lines are in the worker's output; "
        "report fewer or shorter metrics",
    )


def _without_metrics(state: AgentState) -> AgentState:
    posted = state.posted
    stripped = replace(posted, metrics={}) if posted is not None else None
    output = replace(state.output, metrics={}) if state.output is not None else None
    return replace(state, metrics={}, posted=stripped, output=output)


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
    (_places_alone, "most stack frames of hanging ranks"),
    (_few_lines, "most of the last lines of processes"),
    (_short_texts, "their last lines, and the ends of long texts"),
)
"""Least important first, each with the name of what it leaves out."""
