"""Leads one local run: creates world, agent server and reconciler, handles signals, ends the run.

Layer: cli, the composition root of the local world.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainrun.contract import variables
from trainrun.contract.agent_state import AgentState, Problem
from trainrun.errors import InvalidSpec
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli.ctrl_c import on_interrupt
from trainrun_operator.cli.preparation import Preparation
from trainrun_operator.core.run.boundary import Plan
from trainrun_operator.core.run.config import RunConfig, agent_config, config_of
from trainrun_operator.core.run.planner import decide
from trainrun_operator.runtime.agent_server import AgentServer, shared_token
from trainrun_operator.runtime.agents import RunAgents
from trainrun_operator.runtime.line_writers import problem_of_output
from trainrun_operator.runtime.reconciler import Reconciler, Wakeup
from trainrun_operator.runtime.run_events import EventSink, Output
from trainrun_operator.worlds.base import Seen
from trainrun_operator.worlds.local.driver_lock import AlreadyLed
from trainrun_operator.worlds.local.faults import Fault, FaultPlan
from trainrun_operator.worlds.local.place import StoredRun
from trainrun_operator.worlds.local.program import with_interpreter
from trainrun_operator.worlds.local.world import LocalWorld, WorkerTemplate, done_again

LOOPBACK = "127.0.0.1"


class LocalServer(AgentServer):
    """The server for the agents of this machine's runs; a context manager."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        super().__init__(authenticate=shared_token(self.token))
        self.url = ""
        """Set on entry."""

    async def __aenter__(self) -> LocalServer:
        port = await self.start(LOOPBACK)
        self.url = f"http://{LOOPBACK}:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


@dataclass(kw_only=True, eq=False, repr=False)
class LocalRun:
    """One `trainrun run`, once its input has been checked."""

    prepared: Preparation
    stored: StoredRun
    events: EventSink
    on_heartbeat: Callable[[AgentState], None] = lambda _state: None
    """Called with every heartbeat."""
    save_on_interrupt: bool = True
    """False: the first Ctrl-C stops the run at once, as the second one does."""

    def __post_init__(self) -> None:
        self.interrupted = False
        """A signal asked it to stop."""
        self._suspended = self._deposed = self._alone = False
        self._refused = ""
        """Why the edited spec cannot be run."""
        self._stopped = asyncio.Event()
        self._world: LocalWorld | None = None
        self._faults = FaultPlan(
            self.prepared.faults,
            processes_per_worker=self.prepared.processes_per_worker,
            folder=self.prepared.place.faults,
        )

    @property
    def never_struck(self) -> list[Fault]:
        """Faults of the command line that have not struck."""
        return [planned.fault for planned in self._faults.pending]

    @property
    def storage_trouble(self) -> str:
        """Why nothing can be saved now; empty while no problem is known."""
        return self._world.storage_trouble if self._world is not None else ""

    def end(self) -> None:
        """End it now, without another checkpoint; reported checkpoints are still stored."""
        if self._world is not None:
            self._world.suspend(save=False)

    def abandon(self) -> None:
        """Kill all processes; what is not stored yet is lost."""
        self._stopped.set()

    def _is_over(self, seen: Seen, plan: Plan) -> bool:
        # The file was read only once, so waiting for the user to correct it would be pointless.
        if self._alone and plan.reason == "InvalidTemplate":
            self._refused = (
                f"spec.{plan.message}. The run cannot continue: undo the edit of spec.workers "
                "(replicas, command), or start a new run with another storage.runName"
            )
            return True
        # The status says Complete, Failed or Suspended, and no worker is left.
        status = seen.observation.status
        suspended = seen.config.suspend and status.is_true("Suspended")
        alive = any(worker.phase != "Ended" for worker in seen.observation.workers)
        return (status.finished or suspended) and not alive and plan.status.phase == status.phase

    def _end_deposed(self) -> None:
        self._deposed = True
        self.abandon()

    def suspend(self) -> None:
        """Save a checkpoint and stop, as for `spec.suspend`."""
        self._suspended = True
        if self._world is not None:
            self._world.suspend()

    async def lead(self, *, say: Callable[[str], None]) -> TrainRunStatus:
        """Lead the run until it is over or stopped; returns its last status.

        Raises InvalidSpec if an edit makes it impossible to continue, and AlreadyLed.
        """
        self._alone = True
        on_interrupt(
            lambda: self._interrupt(say),
            self.abandon,
            patience=self.prepared.run.spec.workers.template.spec.grace,
            hopeless=lambda: self._is_hopeless(say),
        )
        async with LocalServer() as server:
            status = await self.lead_with(server, say=say)
        if self._refused:
            raise InvalidSpec(self._refused)
        return status

    async def lead_with(self, server: LocalServer, *, say: Callable[[str], None]) -> TrainRunStatus:
        """As `lead`, on a server that other runs may share; the caller handles signals."""
        wakeup = Wakeup()
        world = self._world = self._make_world(server, wakeup)
        if self._suspended:
            world.suspend()
        agents = RunAgents(
            run_uid=self.stored.uid,
            on_news=wakeup.now,
            on_progress=wakeup.soon,
            on_heartbeat=self._on_heartbeat,
            secret=self.prepared.place.read_secret(),
        )
        server.add(agents)
        reconciler = Reconciler(
            world=world, agents=agents, decide=decide, events=self.events, wakeup=wakeup
        )
        left = world.take_over()
        if left:
            say(f"killed {left} leftover processes of an earlier `trainrun run`")
        try:
            await self._until_over(reconciler)
        finally:
            world.close()
            server.remove(agents.run_uid)
        if self._deposed:
            raise AlreadyLed(
                f"another process has taken over run {self.prepared.name} because this one was "
                "silent for too long; this one stops now"
            )
        if world.status.finished:
            world.tidy_up()
        return world.status

    async def _until_over(self, reconciler: Reconciler) -> None:
        leading = asyncio.create_task(reconciler.run(self._is_over))
        stopping = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({leading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (leading, stopping):
            task.cancel()
        if leading.done() and not leading.cancelled():
            leading.result()

    # --------------------------------------------------------------------------- signals

    def _interrupt(self, say: Callable[[str], None]) -> None:
        self.interrupted = True
        if self._world is None or not self.save_on_interrupt:
            self.abandon()
            return
        self._world.suspend()
        say("saving a checkpoint and stopping; press Ctrl-C again to stop at once")

    def _is_hopeless(self, say: Callable[[str], None]) -> bool:
        why = self.storage_trouble
        if why and self._world is not None:
            say(f"stopping without saving: {why}. {done_again(self._world.status).capitalize()}")
        return bool(why)

    def _on_heartbeat(self, state: AgentState) -> None:
        if self._world is not None:
            self._world.heartbeat(state)
        self.on_heartbeat(state)

    # ------------------------------------------------------------------------- composition

    def _make_world(self, server: LocalServer, wakeup: Wakeup) -> LocalWorld:
        # A failed worker's output is kept anyway; its staged files would only take up space.
        found = config_of(self.prepared.run)
        config = replace(found, uid=self.stored.uid, retain_failed_workers=0)
        return LocalWorld(
            place=self.prepared.place,
            stored=self.stored,
            config=config,
            template=self._worker_template(config, server),
            faults=self._faults,
            wake=wakeup.now,
            output=lambda worker, line: self.events.emit(Output(worker=worker, line=line)),
            problems=_problems,
            on_deposed=self._end_deposed,
        )

    def _worker_template(self, config: RunConfig, server: LocalServer) -> WorkerTemplate:
        program = self.prepared.program
        common = agent_config(self.prepared.run, config)
        patience = os.environ.get(variables.CHECKPOINT_PATIENCE)
        agent = replace(
            common,
            operator_url=server.url,
            token=server.token,
            cache=str(self.prepared.place.cache),
            command=program.command,
            working_dir=str(program.working_dir),
            env=dict(program.env),
            address=LOOPBACK,
            checkpoint_patience=float(patience) if patience else common.checkpoint_patience,
            parent_pid=os.getpid(),
            metrics_interval=self.prepared.metrics_interval,
        )
        environ = with_interpreter(os.environ)
        return WorkerTemplate(agent=agent, gpus=self.prepared.gpus, environ=environ)


def _problems() -> tuple[Problem, ...]:
    why = problem_of_output()
    return (Problem(type="OutputLost", reason="Unwritable", message=why),) if why else ()
