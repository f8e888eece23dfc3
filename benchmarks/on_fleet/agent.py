"""An agent without a training: it speaks the protocol as the real one does, and counts steps.

The exchange, the fetch's request, and what is to be done about an order are the agent's own code;
processes, uploads and the store are left out. Each has an address of its own, as a pod has.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun._common.backoff import Backoff
from trainrun.agent import desired_state
from trainrun.agent.desired_state import ActualState, DesiredState
from trainrun.agent.exchange.heartbeat import Heartbeat, OperatorAddresses
from trainrun.agent.exchange.http import HttpClient, HttpError, Interrupt, Response
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.agent_state import AgentState, Offer, ProcessExit, Resolution
from trainrun.contract.answer import Answer, Start
from trainrun.contract.wire import AGENT_PATH


@dataclass(slots=True)
class Leader:
    """Where the Service leads, as the stand-in for kube-proxy has last seen it."""

    host: str
    """The name that certificates are for."""
    port: int = 0
    """On this machine; 0: nobody leads."""


class Client(HttpClient):
    """The agent's own, from the address of its pod."""

    def __init__(
        self, config: AgentConfig, token: str, tls: ssl.SSLContext, leader: Leader, way: str
    ) -> None:
        super().__init__(config.operator_url, address=way, token=lambda: token, tls=tls)
        self._leader = leader
        self._own = int(way.rpartition(":")[2]) if way else 0
        """Port of the operator that is asked past the Service."""
        self._source = config.address
        self.on_heard: Callable[[], None] = lambda: None
        """Called when the leader says that it has read a heartbeat, and when it has answered it."""

    async def post(
        self, path: str, body: bytes, timeout: float, *, interrupt: Interrupt | None = None
    ) -> Response:
        """As the agent's own; only that uvloop has an error of its own for a closed connection."""
        try:
            return await super().post(path, body, timeout, interrupt=interrupt)
        except RuntimeError as error:
            raise HttpError(str(error)) from error

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = self._own or self._leader.port
        if not port:
            raise HttpError("nobody leads")
        connecting = asyncio.open_connection(
            "127.0.0.1",
            port,
            ssl=self._tls,
            server_hostname=self._leader.host,
            local_addr=(self._source, 0),
        )
        self._streams = await asyncio.wait_for(connecting, self._connect_timeout)
        return self._streams

    async def _read_head(self, reader: asyncio.StreamReader) -> str:
        head = await super()._read_head(reader)
        if head.split(" ", 2)[1] in ("102", "200", "204"):
            self.on_heard()
        return head

    async def fetch(self) -> int:
        """Ask for the agent once; returns its size. Raises OSError and EOFError."""
        reader, writer = await self._connect()
        try:
            head = (
                f"GET {AGENT_PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token()}\r\n"
            )
            writer.write(f"{head}\r\n".encode())
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            if " 200 " not in answer.split("\r\n", 1)[0]:
                raise HttpError(answer)
            size = int(answer.partition("content-length: ")[2].split()[0])
            left = size
            while left:
                left -= len(await reader.read(min(left, 1 << 16)) or _cut_off())
            return size
        finally:
            self.close()


def _cut_off() -> bytes:
    raise EOFError


@dataclass(slots=True, kw_only=True)
class FleetAgent:
    """One worker's agent."""

    config: AgentConfig
    connect: Callable[[str], Client]
    left: Callable[[], None]
    """Called when it was ordered to leave, or was rejected for good."""
    heartbeat: Heartbeat = field(init=False)
    desired: DesiredState = field(default_factory=DesiredState)
    began: float = 0.0
    """When its processes were started."""
    exits: tuple[tuple[ProcessExit, float], ...] = ()
    resolution: Resolution | None = None
    started: dict[int, float] = field(default_factory=dict)
    """When the start order of each attempt came."""
    fetched: bool = False
    heard: float = 0.0
    """When the leader has heard it last, as far as it was told."""
    _identity: str = field(default_factory=lambda: secrets.token_hex(16))
    _sequence: int = 0

    def __post_init__(self) -> None:
        self.heartbeat = Heartbeat(
            connect=self._connected,
            state=self.state,
            apply=self.apply,
            replaced=lambda _message: self.left(),
            run_gone=lambda _message: self.left(),
            heartbeat_timeout=self.config.heartbeat_timeout,
            ways=OperatorAddresses(self.config.operators),
        )

    def _connected(self, way: str) -> Client:
        client = self.connect(way)
        client.on_heard = self._was_heard
        return client

    def _was_heard(self) -> None:
        self.heard = time.monotonic()

    @property
    def training(self) -> bool:
        """Its processes live."""
        return self.desired.attempt > 0 and not self.exits

    async def live(self) -> None:
        """Fetch the agent as a new pod does, then speak."""
        backoff = Backoff(0.2, 5.0)
        while not self.fetched:
            try:
                self.fetched = await asyncio.wait_for(self.connect("").fetch(), 30.0) > 0
            except (TimeoutError, OSError, EOFError):
                await asyncio.sleep(backoff.next())
        self.heartbeat.start()

    def tick(self, now: float) -> None:
        """A second has passed: another step."""
        if self.training:
            self.heartbeat.progress()
        self.heartbeat.tick(now)

    def crash(self) -> None:
        """Its process ends by an exception."""
        end = ProcessExit(rank=self.config.slot, code=1, exception="ValueError: a bad batch")
        self.exits = ((end, time.monotonic()),)
        self.heartbeat.news()

    def state(self) -> AgentState:
        """For the next heartbeat."""
        self._sequence += 1
        now = time.monotonic()
        age = now - self.began
        stepped = self.desired.attempt > 0 and age >= 1.0
        return AgentState(
            run=self.config.run,
            run_uid=self.config.run_uid,
            slot=self.config.slot,
            worker=self.config.worker,
            created_for=self.config.created_for,
            agent=self._identity,
            sequence=self._sequence,
            node=self.config.node,
            phase=desired_state.phase(self.desired, self._actual, now),
            attempt=self.desired.attempt,
            exits=tuple(
                ProcessExit(
                    rank=end.rank,
                    code=end.code,
                    signal=end.signal,
                    exception=end.exception,
                    ordered=end.ordered,
                    age=now - at,
                )
                for end, at in self.exits
            ),
            steps=((int(age) if stepped else None,)) if self.desired.attempt else (),
            metrics={"loss": 1.0 / (1.0 + age), "accuracy": 0.5, "samples_per_second": 1234.5},
            held=self.desired.acknowledged,
            offer=self.desired.offer,
            resolution=self.resolution,
            spawned=age if self.desired.attempt else None,
            first_step=age - 1.0 if stepped else None,
            stepped=age % 1.0 if stepped else None,
            seen=self.desired.seen,
            serves=f"{self.config.address}:40000",
        )

    def apply(self, answer: Answer) -> bool:
        """Take an answer."""
        now, before = time.monotonic(), self.desired
        self.desired = desired_state.answered(before, answer, now)
        if self.desired is not before:
            self._do(now)
        return self.desired is not before

    @property
    def _actual(self) -> ActualState:
        return ActualState(alive=self.training, stopped=not self.training, uploading=False)

    def _do(self, now: float) -> None:
        before = self.state()
        for task in desired_state.to_do(self.desired, self._actual, now):
            match task:
                case desired_state.Stop():
                    end = ProcessExit(rank=self.config.slot, signal=9, ordered=True)
                    self.exits = ((end, now),)
                    self._do(now)
                case desired_state.OfferPort():
                    offer = Offer(attempt=task.attempt, address=self.config.address, port=20000)
                    self.desired = desired_state.offered(self.desired, offer)
                case desired_state.Resolve() if task.request is not None:
                    if not desired_state.settled(self.resolution, task.request):
                        self.resolution = Resolution(
                            attempt=task.request.attempt, outcome="Resolved"
                        )
                case desired_state.Begin():
                    self._begin(task.order, now)
                case desired_state.Leave():
                    self.left()
                case _:
                    pass
        if before.held != self.desired.acknowledged or before.attempt != self.desired.attempt:
            self.heartbeat.news()

    def _begin(self, order: Start, now: float) -> None:
        self.desired = desired_state.started(self.desired, order.attempt)
        self.started[order.attempt] = self.began = now
        self.exits, self.resolution = (), None
        # The first step is news, as it is with a real one.
        asyncio.get_running_loop().call_later(1.0, self.heartbeat.news)
        self.heartbeat.news()
