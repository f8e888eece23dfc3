"""The exchange with the operator: news are posted at once, one long poll waits for orders.

Layer: agent. Level-triggered: each heartbeat carries the whole state, each answer the whole
desired state, so nothing is lost when either side forgets. Every error leads to a new connection
after a pause; training goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun.agent import background
from trainrun.agent.backoff import Backoff
from trainrun.agent.http import HttpClient, HttpError, Response
from trainrun.protocol import AgentState, Answer
from trainrun.wire import MalformedMessage

LOG = logging.getLogger("trainrun.agent")

PATH = "/v1/heartbeat"
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between tries while the operator cannot be reached."""
UNWANTED_PAUSE = 10.0
"""Seconds after an operator said that it cannot accept this agent."""
FINAL_ANSWERS = 3
"""So many answers in a row that this worker does not belong to the run any more, or that its run is
gone, are final: only a leader that knows all runs and workers says so."""
REPLACED_PAUSE, REPLACED_SECONDS = 5.0, 10.0
GONE_PAUSE, GONE_SECONDS = 1.0, 2.0
"""Seconds between two tries after such an answer, and that they must span."""
EARLY_PAUSE = 0.5
"""Seconds after a second poll in a row that was answered early and with nothing new."""
LONGEST_POLL = 10.0
POST_TIMEOUT = 10.0
SHORTEST_TIMEOUT = 4.0
"""Seconds for an exchange, besides what the server was asked to wait: at most and at least; between
them a third of the time after which the operator takes us for lost."""
STOP_TIME = 1.0
"""Seconds for the channels to end."""
PROGRESS_INTERVAL = 1.0
"""Seconds between two posts that only carry steps and metrics."""


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """Both channels to the operator."""

    connect: Callable[[], HttpClient]
    """Makes a client; each channel has its own connection."""
    state: Callable[[], AgentState]
    """The present state, with the next sequence number."""
    apply: Callable[[Answer], bool]
    """Takes an answer; says whether it brought anything new."""
    replaced: Callable[[str], None] = lambda _message: None
    """Called once the operator has said for good that this worker is not of the run any more."""
    run_gone: Callable[[str], None] = lambda _message: None
    """Called once the operator has said for good that the run is gone as a whole."""
    heartbeat_timeout: float = 3 * LONGEST_POLL
    """Seconds after which the operator takes us for lost."""
    last_answer: float = field(default_factory=time.monotonic)
    """When the operator last answered, on the monotonic clock."""
    _poll: float = LONGEST_POLL
    _applied: int = 0
    """Answers that brought something new."""
    _due: asyncio.Event = field(default_factory=asyncio.Event)
    _moved: bool = False
    _last_post: float = 0.0
    _complaints: set[str] = field(default_factory=set)
    """What was logged since the operator last answered."""
    _status: int = 0
    """Of the last answer."""
    _since: list[float] = field(default_factory=list)
    """When each of the last answers with this status came."""
    _stopped: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        """Begin both channels; the first news are what waiting for orders tells anyway."""
        self._tasks = [
            background.run(self._post_news()),
            background.run(self._wait_for_orders()),
        ]

    def news(self) -> None:
        """Something changed that the operator waits for: post it in this turn of the loop."""
        self._due.set()

    def progress(self) -> None:
        """Steps or metrics changed: post it with the next tick."""
        self._moved = True

    def tick(self, now: float) -> None:
        """Called about once a second."""
        if self._moved and now - self._last_post >= PROGRESS_INTERVAL * 0.9:
            self._due.set()

    async def post_last(self, timeout: float) -> None:
        """Stop both channels and tell the final state, if the operator can be reached."""
        await self.stop()
        client = self.connect()
        try:
            await client.post(PATH, self.state().to_json().encode(), timeout)
        except HttpError as error:
            LOG.info("the last state could not be told: %s", error)
        finally:
            client.close()

    async def stop(self) -> None:
        """Stop both channels."""
        # Python before 3.12 loses a cancellation that meets the end of `wait_for`.
        self._stopped = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_TIME)

    async def _post_news(self) -> None:
        client, backoff = self.connect(), Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while not self._stopped:
            await self._due.wait()
            self._due.clear()
            self._moved = False
            self._last_post = time.monotonic()
            pause = await self._exchange(client, PATH, self._patience, backoff)
            if pause:
                self._due.set()  # still untold
                await asyncio.sleep(pause)

    async def _wait_for_orders(self) -> None:
        client, backoff = self.connect(), Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        in_vain = 0
        while not self._stopped:
            wait, begun, applied = self._wait, time.monotonic(), self._applied
            path = f"{PATH}?wait={wait:.1f}"
            pause = await self._exchange(client, path, wait + self._patience, backoff)
            early = time.monotonic() - begun < wait / 2
            in_vain = in_vain + 1 if early and applied == self._applied else 0
            # Once is usual: the other channel had brought this answer before. An operator that
            # does not hold answers back must not be asked all the time.
            await asyncio.sleep(pause or (EARLY_PAUSE if in_vain > 1 else 0.0))

    @property
    def _wait(self) -> float:
        return min(self._poll, LONGEST_POLL, self.heartbeat_timeout / 3)

    @property
    def _patience(self) -> float:
        return max(SHORTEST_TIMEOUT, min(POST_TIMEOUT, self.heartbeat_timeout / 3))

    async def _exchange(
        self, client: HttpClient, path: str, timeout: float, backoff: Backoff
    ) -> float:
        """One heartbeat and its answer; returns the pause before the next, 0 when it went well."""
        try:
            response = await client.post(path, self.state().to_json().encode(), timeout)
            pause = self._take(response, backoff)
        except (HttpError, MalformedMessage) as error:
            self._complain(f"the operator cannot be reached: {error}")
            pause = backoff.next()
        if pause:
            client.close()  # a fresh lookup: another leader may answer
        return pause

    def _take(self, response: Response, backoff: Backoff) -> float:
        """Apply an answer; returns the pause before the next try. Raises MalformedMessage."""
        text = response.body.decode(errors="replace")[:500]
        if response.status != self._status:
            self._status, self._since = response.status, []
        match response.status:
            case 200 | 204:
                backoff.reset()
                self.last_answer = time.monotonic()
                if self._complaints:
                    LOG.info("the operator answers again")
                    self._complaints.clear()
                if response.status == 200:
                    answer = Answer.from_json(response.body)
                    self._poll = max(0.1, answer.poll)
                    self._applied += self.apply(answer)
                return 0.0
            case 503:
                return backoff.next()
            case 401 | 403:
                self._complain(f"the operator does not accept this agent: {text}")
                return UNWANTED_PAUSE
            case 409:
                self._complain(f"the operator does not want this agent: {text}")
                if self._is_final(REPLACED_SECONDS):
                    self.replaced(text)
                return REPLACED_PAUSE
            case 410:
                self._complain(f"the operator does not want this agent: {text}")
                if self._is_final(GONE_SECONDS):
                    self.run_gone(text)
                return GONE_PAUSE
            case 426:
                self._complain(f"the versions of operator and agent do not fit: {text}")
                return UNWANTED_PAUSE
            case _:
                self._complain(f"the operator answered {response.status}: {text}")
                return backoff.next()

    def _is_final(self, seconds: float) -> bool:
        self._since.append(time.monotonic())
        return len(self._since) >= FINAL_ANSWERS and self._since[-1] - self._since[0] >= seconds

    def _complain(self, text: str) -> None:
        if text not in self._complaints:
            LOG.warning("%s", text)
            self._complaints.add(text)
