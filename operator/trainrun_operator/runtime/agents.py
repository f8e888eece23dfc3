"""The newest state of one run's agents, their answers, and how often they report.

Layer: runtime; no network here (see `agent_server`). Invariants: a late heartbeat never replaces a
newer one; a replaced agent of a worker is never accepted again; a held request ends as soon as its
answer differs from the one its agent has seen. The cost of agents that train well is bounded by how
often they poll, however many there are: progress is reported and processed less often as the fleet
grows, every second in a small one; other news at once. The key of an attempt is derived whenever it
is needed and sent only to agents: no status, log, environment or store holds it. So is the key of
the certificate with which they serve other nodes.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from trainrun._common.text import cleaned
from trainrun.contract.agent_state import AgentState
from trainrun.contract.ages import aged, changed, essence
from trainrun.contract.answer import PROGRESS_INTERVAL, Answer, Start
from trainrun.contract.staged_parts import NodeCertificate
from trainrun_operator.worlds.base import AgentContact

_SALT = b"trainrun attempt key v1"


def attempt_key(secret: bytes, *, run_uid: str, attempt: int) -> str:
    """Key of an attempt (64 hexadecimal digits) by HKDF-SHA256 (RFC 5869, one block of output);
    `secret` is the operator's own, at least 32 random bytes."""
    extracted = hmac.digest(_SALT, secret, "sha256")
    info = json.dumps([run_uid, attempt]).encode()
    return hmac.digest(extracted, info + b"\x01", "sha256").hex()


FLEET = 200
"""Agents up to which those whose progress is the run's report it every second. In a larger fleet
they report less often, at 20 heartbeats a second in all, or at their poll interval. In gangs of ten
that is 20 passes a second, too: with 2,000 agents one pass per run in ten seconds, and a status in
the cluster shows progress every twenty."""
LONGEST = 10.0
"""Maximum seconds between two passes over the progress of a run, however large the fleet."""


@dataclass(slots=True, kw_only=True)
class Cadence:
    """How often agents report progress, over all runs of an operator."""

    agents: int = 0
    """The number of agents."""

    @property
    def interval(self) -> float:
        """Seconds between two passes over a run if only steps and metrics changed."""
        return min(max(self.agents / FLEET, PROGRESS_INTERVAL), LONGEST)

    def paced(self, answer: Answer) -> Answer:
        """The answer with the progress interval for this fleet, at most the poll interval."""
        stretched = answer.progress * self.agents / FLEET
        return changed(answer, progress=min(max(stretched, PROGRESS_INTERVAL), answer.poll))


BEAT = 1.0
"""Seconds between two signs of life of our own event loop."""
TOLERATED_LAG = 3.0
"""Seconds by which such a sign may be late."""
FRESH = 60.0
"""Seconds for which a heartbeat tells what a worker does now."""
LONGEST_REASON = 300
"""Characters kept of the reason why a message cannot be read."""
REPLACED = 64
"""Replaced agents remembered per worker: an honest worker has one or two."""


@dataclass(slots=True, kw_only=True)
class _AgentLink:
    """The state of the exchange with one worker's agent."""

    since: float
    """When we started to listen to it (monotonic)."""
    state: AgentState | None = None
    essence: AgentState | None = None
    """The part of the state whose changes are news."""
    received_at: float = 0.0
    unreadable: str = ""
    """Why its newest message cannot be read."""
    unreadable_at: float = 0.0
    """When the last unreadable message arrived."""
    replaced: deque[str] = field(default_factory=lambda: deque(maxlen=REPLACED))
    """Earlier agents of the same worker: they count as dead, even if messages still arrive."""
    answer: Answer | None = None
    digest: str = ""
    held: asyncio.Future[None] | None = None
    """Ends the held request."""
    held_seen: str = ""
    """The digest of the answer that its agent has seen."""


@dataclass(kw_only=True, eq=False, repr=False)
class RunAgents:
    """The agents of one run."""

    run_uid: str
    on_news: Callable[[], None]
    """Called when something that decisions depend on has changed."""
    on_progress: Callable[[], None]
    """Called when only steps and metrics have changed."""
    on_heartbeat: Callable[[AgentState], None] = lambda _state: None
    """Called with every heartbeat that is not late."""
    clock: Callable[[], float] = time.monotonic
    secret: bytes = b""
    """Keys of attempts are derived from it; empty: agents get no key."""
    certificate: Callable[[], NodeCertificate | None] = lambda: None
    """With what agents of a run with buddies serve other nodes; None: they do not."""

    def __post_init__(self) -> None:
        self._listening_since = self.clock()
        self._beaten_at: float | None = None
        """When our loop last showed a sign of life; None: it is not watched."""
        self._links: dict[str, _AgentLink] = {}
        self.ordered = 0
        """The highest attempt that an agent was ordered to start."""
        self._last_words: dict[int, AgentState] = {}
        """By slot."""
        self.workers_known = False
        """Whether `expect` was called: before that no worker counts as unknown."""

    # --------------------------------------------------------------- for the reconciler

    def expect(self, workers: Collection[str]) -> None:
        """These workers belong to the run: agents of all others are refused."""
        self.workers_known = True
        for name in [name for name in self._links if name not in workers]:
            link = self._links.pop(name)
            self._keep_last_state(link.state)
            _release(link)
        for name in workers:
            self.admit(name)

    def admit(self, worker: str) -> None:
        """This worker also belongs to the run."""
        if worker not in self._links:
            self._links[worker] = _AgentLink(since=self.clock())

    @property
    def fresh_states(self) -> tuple[AgentState, ...]:
        """The last heartbeats of the workers that were heard within FRESH seconds."""
        now = self.clock()
        links = (link for link in self._links.values() if now - link.received_at < FRESH)
        return tuple(link.state for link in links if link.state is not None)

    @property
    def workers(self) -> int:
        """The number of workers of the run."""
        return len(self._links)

    def contact(self, worker: str) -> AgentContact:
        """The last contact with this worker's agent."""
        self._catch_up()
        link = self._links.get(worker)
        if link is None:
            return AgentContact(state=None, silent_for=timedelta(0))
        last = max(link.since if link.state is None else link.received_at, link.unreadable_at)
        # During an outage of our own we received nothing: silence counts from its end.
        silent = max(0.0, self.clock() - max(last, self._listening_since))
        state = link.state and aged(link.state, by=self.clock() - link.received_at)
        return AgentContact(
            state=state, silent_for=timedelta(seconds=silent), unreadable=link.unreadable
        )

    @property
    def last_words(self) -> tuple[AgentState, ...]:
        """For each slot the last heartbeat of the newest agent that is gone: it shows what that
        agent had stored."""
        return tuple(self._last_words.values())

    def _keep_last_state(self, state: AgentState | None) -> None:
        """Keep the last heartbeat of an agent that is gone."""
        if state is None:
            return
        newest = self._last_words.get(state.slot, state)
        self._last_words[state.slot] = max(newest, state, key=lambda last: last.attempt)

    @property
    def listening_for(self) -> timedelta:
        """How long we have been able to receive heartbeats without interruption."""
        self._catch_up()
        return timedelta(seconds=max(0.0, self.clock() - self._listening_since))

    def restart_listening(self, *, grace: float = 0.0) -> None:
        """We could not receive for a while: measure silence from now plus `grace` seconds."""
        self._listening_since = max(self._listening_since, self.clock() + grace)

    def beat(self) -> None:
        """Our loop is alive. After the first call, call this every BEAT seconds."""
        self._catch_up()
        self._beaten_at = self.clock()

    def _catch_up(self) -> None:
        # Checked at every judgement: after a pause of this process a pass over the run may come
        # before the next beat, and before heartbeats sent in the pause are read.
        now = self.clock()
        if self._beaten_at is not None and now - self._beaten_at > BEAT + TOLERATED_LAG:
            self._beaten_at = now
            self._listening_since = max(self._listening_since, now)

    def publish(self, answers: Mapping[str, Answer]) -> None:
        """Replace all answers; an agent that waits for a different one gets it at once."""
        digests: dict[int, str] = {}
        """By answer: in a large gang most agents get the same one."""
        for name, link in self._links.items():
            answer = answers.get(name)
            if answer is not None and isinstance(answer.order, Start):
                self.ordered = max(self.ordered, answer.order.attempt)
            if answer is not link.answer and answer != link.answer:
                if answer is not None and id(answer) not in digests:
                    digests[id(answer)] = answer.digest
                link.answer, link.digest = answer, digests.get(id(answer), "")
            if answer is not None and link.digest != link.held_seen:
                _release(link)

    # ------------------------------------------------------------- for the agent server

    def knows(self, worker: str) -> bool:
        """Whether this worker belongs to the run."""
        return worker in self._links

    def receive(self, state: AgentState) -> bool:
        """Keep the state of a known worker's agent; False when its agent has been replaced."""
        link = self._links[state.worker]
        if state.agent in link.replaced:
            return False
        before = link.state
        if before is not None and before.agent != state.agent:
            link.replaced.append(before.agent)
            self._keep_last_state(before)
            link.answer = None  # it was meant for the previous agent
        elif before is not None and state.sequence <= before.sequence:
            return True  # late or repeated: answer it, but ignore its state
        was_unreadable, link.unreadable = link.unreadable, ""
        before_essence, link.essence = link.essence, essence(state)
        link.state, link.received_at = state, self.clock()
        self.on_heartbeat(state)
        if before is None or link.essence != before_essence or was_unreadable:
            self.on_news()
        elif _progress(before) != _progress(state):
            self.on_progress()
        return True

    def receive_unreadable(self, worker: str, why: str) -> None:
        """This worker's agent, if it is ours, is alive but sent an unreadable message."""
        link = self._links.get(worker)
        if link is None:
            return
        link.unreadable_at = self.clock()
        if not link.unreadable:
            link.unreadable = cleaned(why)[:LONGEST_REASON]
            self.on_news()

    async def answer(
        self,
        state: AgentState,
        *,
        wait: float,
        on_hold: Callable[[], Awaitable[None]] | None = None,
    ) -> Answer | None:
        """The answer for this agent; with `wait`, held back until it differs from `state.seen`.

        `wait` is in seconds; `on_hold` is called if it is held back, `release` ends that. None:
        there is nothing for the agent to do yet.
        """
        link = self._links[state.worker]
        if wait > 0 and (link.answer is None or link.digest == state.seen):
            _release(link)  # a newer request of the same agent ends the older one
            link.held = asyncio.get_running_loop().create_future()
            link.held_seen = state.seen
            held = link.held
            if on_hold is not None:
                await on_hold()
            ending = asyncio.get_running_loop().call_later(wait, _end, held)
            try:
                await held
            finally:
                ending.cancel()
        return self._with_secrets(link.answer)

    def _with_secrets(self, answer: Answer | None) -> Answer | None:
        """Add keys only here: answers that are decided, compared and shown do not hold them."""
        if answer is None or not isinstance(answer.order, Start) or not self.secret:
            return answer
        key = attempt_key(self.secret, run_uid=self.run_uid, attempt=answer.order.attempt)
        buddies = answer.settings is not None and answer.settings.buddy
        return replace(answer, key=key, certificate=self.certificate() if buddies else None)

    def release(self, worker: str) -> None:
        """This agent has something new to send: answer its held request at once."""
        if (link := self._links.get(worker)) is not None:
            _release(link)

    def close(self) -> None:
        """Answer all held requests."""
        for link in self._links.values():
            _release(link)


def _progress(state: AgentState) -> tuple[object, ...]:
    return state.steps, state.metrics, state.posted, state.output


def _release(link: _AgentLink) -> None:
    if link.held is not None:
        _end(link.held)
    link.held = None


def _end(held: asyncio.Future[None]) -> None:
    if not held.done():
        held.set_result(None)


OUTAGE_GRACE = 45.0
"""Seconds after an outage of the API server: kube-proxy waits as long as 30 s between its tries."""
NO_LEADER = 20.0
"""Seconds without a leader that no crash explains, since followers wait only ten: there was an
outage, even if a process started later did not see it."""


def silence_grace(*, since_outage: float, vacant_for: float) -> float:
    """Seconds from now in which no agent counts as silent.

    `since_outage`: seconds since the API server was back; `vacant_for`: seconds without a leader.
    """
    if vacant_for > NO_LEADER:
        return OUTAGE_GRACE
    return max(0.0, OUTAGE_GRACE - since_outage)
