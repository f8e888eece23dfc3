"""The agent: wires its parts together and handles signals and timers.

Layer: agent. Everything runs in one event loop in the main thread, so nothing here needs a lock;
only store calls and output writes have their own threads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import ssl
import time
from dataclasses import dataclass, field

from trainrun._common import kernel
from trainrun.agent import background, shutdown
from trainrun.agent.attempt_context import AttemptContext
from trainrun.agent.checkpoints.buddy import Buddy
from trainrun.agent.checkpoints.fetching import Prefetching, Rechecking
from trainrun.agent.checkpoints.resolving import Ownership, Resolving
from trainrun.agent.checkpoints.run_artifacts import LogKeeping, Recording
from trainrun.agent.checkpoints.sharing import Sharing
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.code import Code
from trainrun.agent.evidence.gathering import EvidenceCollector
from trainrun.agent.exchange.heartbeat import Heartbeat, OperatorAddresses
from trainrun.agent.exchange.http import HttpClient, token_source
from trainrun.agent.faults import Faults
from trainrun.agent.processes.environment import Folders
from trainrun.agent.processes.launches import ranks_of
from trainrun.agent.processes.output import Sink
from trainrun.agent.processes.spawn import reap
from trainrun.agent.processes.standbys import Standbys
from trainrun.agent.shutdown import Shutdown, ShutdownPlan
from trainrun.agent.state import describe, problems
from trainrun.agent.worker_supervisor import WorkerSupervisor
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.agent_state import AgentState, Notice, Problem
from trainrun.contract.answer import Answer, Exit, Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import TrainRunError

LOG = logging.getLogger("trainrun.agent")

TICK = 1.0
"""Seconds between two checks of what only time changes."""
AWAY = 30.0
"""Seconds without an answer after which the agent asks the store what others have stored, and the
seconds between two such requests."""
WARM_UP = (30.0, 120.0)
"""Range of seconds after its start in which an agent loads its store client, unless it needs it
earlier: this takes half a second of CPU, which a large gang starting on few nodes needs itself.
Drawn at random, since all agents at once would slow down everything else."""
LAST_SECONDS = 2.0
"""Seconds before the end of the grace period at which the agent stops the training."""
EXIT_SECONDS = 10.0
"""Seconds for unfinished uploads when the run is over."""
ORPHAN_SECONDS = 5.0
"""Seconds for unfinished uploads when the parent has died."""
TERMINATED = 128 + 15
"""Exit code after SIGTERM."""
ORPHANED = 1
"""Exit code after the parent's death."""
REPLACED = 1
"""Exit code of a worker that no longer belongs to the run."""


@dataclass(slots=True, kw_only=True)
class Agent:
    """One agent process."""

    config: AgentConfig
    storage: AsyncRunStore
    folders: Folders
    sink: Sink
    done: asyncio.Future[int]
    """Becomes the exit code."""
    tls: ssl.SSLContext | None = None
    """How the operator's address is verified, where it is https."""
    identity: str = field(default_factory=lambda: secrets.token_hex(16))
    supervisor: WorkerSupervisor = field(init=False)
    heartbeat: Heartbeat = field(init=False)
    shutdown: Shutdown = field(init=False)
    sharing: Sharing = field(init=False)
    _sequence: int = 0
    _noticed: float | None = None
    """When SIGTERM arrived, on the monotonic clock."""
    _kill_at: float | None = None
    """When to kill processes that got SIGTERM without an order, on the monotonic clock."""
    _problems: tuple[Problem, ...] = ()
    _asked_store: float = 0.0
    _reconciling: bool = False

    def __post_init__(self) -> None:
        config = self.config
        token = token_source(config)
        self.heartbeat = Heartbeat(
            connect=lambda way: HttpClient(
                config.operator_url, address=way, token=token, tls=self.tls
            ),
            state=self.state,
            apply=self.apply,
            replaced=self.replaced,
            run_gone=self.run_gone,
            heartbeat_timeout=config.settings.heartbeat_timeout,
            ways=OperatorAddresses(config.operators),
        )
        ownership = Ownership(storage=self.storage, committed=self._committed, news=self.news)
        counter = kernel.find_counter()
        around = AttemptContext(
            config=config,
            folders=self.folders,
            storage=self.storage,
            sink=self.sink,
            oom=kernel.OomCounter(counter),
            standbys=Standbys(
                preload=config.preload,
                folder=self.folders.standby,
                memory_used=lambda: kernel.memory_used(counter),
                news=self.heartbeat.progress,
            ),
            faults=Faults(config.faults),
            news=self.news,
            progress=self.heartbeat.progress,
        )
        self.supervisor = WorkerSupervisor(
            around=around,
            resolving=Resolving(storage=self.storage, news=self.news, resolved=ownership.keep),
            prefetching=Prefetching(storage=self.storage, ranks=ranks_of(config)),
            rechecking=Rechecking(storage=self.storage, news=self.news),
            recording=Recording(storage=self.storage, news=self.news),
            logs=LogKeeping(storage=self.storage),
            code=Code(config=config, news=self.news),
            gathering=EvidenceCollector(storage=self.storage, news=self.news),
            ownership=ownership,
            leave=self._leave_on_order,
            buddy=Buddy(
                folder=self.folders.copies, storage=self.storage, tls=self.tls, news=self.news
            ),
        )
        self.sharing = Sharing(self.storage.downloads, self.identity, self.supervisor.staged_part)
        self.shutdown = Shutdown(
            supervisor=self.supervisor,
            heartbeat=self.heartbeat,
            storage=self.storage,
            slot=config.slot,
            done=self.done,
        )

    def start(self) -> None:
        """Start serving, polling and ticking."""
        self.sharing.open(self.config.address)
        self.heartbeat.start()
        self._prepare()
        background.run(self._warm_up())
        background.run(self._tick())

    def news(self) -> None:
        """Something changed: report it and reconcile, once per turn of the loop."""
        self.heartbeat.news()
        if not self._reconciling:
            self._reconciling = True
            asyncio.get_running_loop().call_soon(self._reconcile)

    def state(self) -> AgentState:
        """The state for the next heartbeat."""
        self._sequence += 1
        now = time.monotonic()
        return describe(
            self.supervisor,
            now,
            agent=self.identity,
            sequence=self._sequence,
            notice=self._notice(now),
            serves=self.sharing.address,
            serves_tls=self.sharing.tls_address,
        )

    def apply(self, answer: Answer) -> bool:
        """Apply an answer of the operator; False when it changes nothing."""
        if answer.certificate is not None and not self.shutdown.begun:
            self.sharing.open_tls(self.config.address, answer.certificate)
            self.supervisor.buddy.certificate = answer.certificate
        return not self.shutdown.begun and self.supervisor.apply(answer)

    def child_ended(self) -> None:
        """SIGCHLD: reap everything that ended."""
        for pid, status in reap():
            self.supervisor.reaped(pid, status)
        self._reconcile()

    def terminated(self) -> None:
        """SIGTERM: this worker will be taken away. Only `should_save()` informs the training."""
        now = time.monotonic()
        if self._noticed is not None:
            self.shutdown.begin(
                ShutdownPlan(code=TERMINATED, seconds=0.0, reason="received SIGTERM twice")
            )
            return
        LOG.warning("SIGTERM: this worker ends within %.0f s", self.config.grace_seconds)
        self._noticed = now
        if self.supervisor.attempt is not None:
            self.supervisor.attempt.uploads.hurry()
        self.news()

    def replaced(self, message: str) -> None:
        """The operator has finally decided that this worker no longer belongs to the run."""
        if self.shutdown.begun:
            return
        reason = f"no longer part of the run: {message}"
        LOG.warning("this worker is %s", reason)
        if self._noticed is None:
            # Another worker has its slot: what this one could still store is fenced anyway.
            self.shutdown.begin(ShutdownPlan(code=REPLACED, seconds=0.0, reason=reason))
        else:
            # The checkpoint saved on its notice may be the newest one: worth the grace.
            self._leave_within(self._grace_left(time.monotonic()), reason)

    def run_gone(self, message: str) -> None:
        """The TrainRun was deleted: store what was saved and release the storage, so that the next
        TrainRun of this name need not wait."""
        if not self.shutdown.begun:
            LOG.warning("this worker ends: %s", message)
            self._leave_within(self._grace_left(time.monotonic()), message, ended=True)

    def parent_died(self) -> None:
        """The local world's driver has died, so no more orders can arrive."""
        if os.getppid() != self.config.parent_pid:
            reason = f"the parent process {self.config.parent_pid} has died"
            LOG.warning("%s", reason)
            self.shutdown.begin(ShutdownPlan(code=ORPHANED, seconds=ORPHAN_SECONDS, reason=reason))

    def crashed(self, code: int) -> None:
        """A bug: exit at once; the processes die with us and the operator replaces the worker."""
        if not self.done.done():
            self.done.set_result(code)

    def _notice(self, now: float) -> Notice | None:
        if self._noticed is None:
            return None
        left = max(0.0, self._grace_left(now))
        return Notice(reason="SIGTERM", age=now - self._noticed, remaining=left)

    def _grace_left(self, now: float) -> float:
        return (now if self._noticed is None else self._noticed) + self.config.grace_seconds - now

    def _committed(self) -> CheckpointId | None:
        attempt = self.supervisor.attempt
        if attempt is None:
            return None
        newest = self.supervisor.committed(time.monotonic())
        given = None if attempt.start.staged else attempt.start.resume
        return newest.id if newest is not None else given

    def _leave_on_order(self, order: Exit) -> None:
        self.shutdown.begin(
            ShutdownPlan(
                code=order.code,
                seconds=min(EXIT_SECONDS, self.supervisor.settings.flush_timeout),
                reason=f"ordered to exit with code {order.code}",
                succeeded=order.succeeded,
                ended=True,
            )
        )

    def _reconcile(self) -> None:
        self._reconciling = False
        if not self.shutdown.begun:
            self.supervisor.reconcile()
            self._drain(time.monotonic())
            self._prepare()

    def _drain(self, now: float) -> None:
        """After a notice: exit when nothing is left to do, or just before the grace is over."""
        if self._noticed is None or self.shutdown.begun:
            return
        left = self._grace_left(now)
        if left <= LAST_SECONDS or self._nothing_to_do():
            self._leave_within(left, "received SIGTERM")

    def _end_alone(self, now: float) -> None:
        """After a notice that no operator has received: SIGTERM for a script that never asks."""
        attempt = self.supervisor.attempt
        if self._noticed is None or attempt is None or self.shutdown.begun:
            return
        if self._kill_at is not None:
            if now >= self._kill_at and attempt.processes.alive:
                attempt.stop()
            return
        settings, left = self.supervisor.settings, self._grace_left(now)
        if (
            self.supervisor.desired.runs
            and attempt.processes.alive
            and shutdown.gives_sigterm(settings, asks=attempt.voter.vote.calls > 0)
            and shutdown.out_of_reach(
                noticed=self._noticed,
                grace=self.config.grace_seconds,
                answered=self.heartbeat.last_answer,
                now=now,
            )
        ):
            time_left = shutdown.time_to_end(settings, left=left)
            LOG.warning("no operator answers: SIGTERM to the training, %.0f s left", time_left)
            attempt.processes.terminate()
            self._kill_at = now + time_left

    def _leave_within(self, seconds: float, reason: str, *, ended: bool = False) -> None:
        for_uploads = max(0.0, seconds - LAST_SECONDS / 2)
        plan = ShutdownPlan(code=TERMINATED, seconds=for_uploads, reason=reason, ended=ended)
        self.shutdown.begin(plan)

    def _nothing_to_do(self) -> bool:
        supervisor, attempt = self.supervisor, self.supervisor.attempt
        number = attempt.number if attempt is not None else 0
        if isinstance(supervisor.desired.order, Start):
            if supervisor.desired.order.attempt > number:
                return False
            exits = attempt.processes.exits(time.monotonic()) if attempt is not None else ()
            if any(end.yielded for end in exits):
                # Others may still be saving the same step: our exit would end their attempt.
                return False
        uploading = attempt is not None and attempt.uploads.unfinished()
        return supervisor.phase == "Idle" and not uploading

    async def _warm_up(self) -> None:
        """At once for slot 0, which asks the store before anything starts, and for a replacement
        worker, since there may be something to resume from."""
        if self.config.slot > 0 and self.config.created_for == 1:
            await asyncio.sleep(random.uniform(*WARM_UP))
        await self.storage.warm_up()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            if self.config.parent_pid is not None:
                self.parent_died()
            if self.supervisor.attempt is not None:
                self.supervisor.attempt.look(now)
            found = problems(self.supervisor, now)
            if found != self._problems:
                self._problems = found
                for problem in found:  # the operator shows them to the user, once for all workers
                    LOG.info("%s: %s", problem.type, problem.message)
                self.heartbeat.news()
            self.heartbeat.tick(now)
            self._end_alone(now)
            self._drain(now)
            self._keep_standbys(now)
            self._prepare()
            self._count_votes(now)
            if now - max(self.heartbeat.last_answer, self._asked_store) > AWAY:
                self._asked_store = now
                # Not awaited: a hanging store must not hide the end of the grace.
                background.run(self._ask_store())

    def _keep_standbys(self, now: float) -> None:
        """Only for a worker that is not about to exit."""
        self.supervisor.around.standbys.tick(now)
        attempt, stays = self.supervisor.attempt, self._noticed is None and not self.shutdown.begun
        if attempt is not None and self.supervisor.desired.runs and stays:
            attempt.keep_standbys(now)

    def _prepare(self) -> None:
        """The same before an attempt starts."""
        if self._noticed is None and not self.shutdown.begun:
            self.supervisor.prepare()

    def _count_votes(self, now: float) -> None:
        """If the operator is silent, find in the store at which call of should_save() to save."""
        attempt = self.supervisor.attempt
        if attempt is not None and self.supervisor.desired.runs and not self.shutdown.begun:
            attempt.tally.tick(now, silent=now - self.heartbeat.last_answer)

    async def _ask_store(self) -> None:
        """The operator is away: find in the store which steps other workers have stored."""
        attempt = self.supervisor.attempt
        if attempt is None or self.shutdown.begun:
            return
        try:
            steps = await asyncio.wait_for(self.storage.open_steps(attempt.number), AWAY)
        except (TrainRunError, asyncio.TimeoutError) as error:
            LOG.info("cannot reach the operator or the store: %s", error)
            return
        attempt.hear(steps)
        attempt.changed()
