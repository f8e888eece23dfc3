"""The local world: one run's workers as processes of this machine, its status in a file.

Layer: worlds/local. Belongs to one `trainrun run`; the driver lock ensures that there is only one
per run. Leftover processes of an earlier one are killed before anything starts.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.agent_state import AgentState, Notice, Problem
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import (
    Action,
    CreateWorker,
    DeleteRun,
    DeleteWorker,
    Observation,
)
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.view import STORE_AWAY, worker_name
from trainrun_operator.worlds.base import Agents, Seen, StatusConflict, StatusUnwritable
from trainrun_operator.worlds.local.faults import FaultPlan, PlannedFault
from trainrun_operator.worlds.local.place import RunPlace, StatusFile, StoredRun
from trainrun_operator.worlds.local.worker import (
    OUTPUT_FILE,
    AgentProcess,
    LocalWorker,
    kill_all,
    signal_child,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTemplate:
    """What all agents of the run are started with."""

    agent: AgentConfig
    """slot, worker, folders, grace and faults are filled in for each worker."""
    gpus: tuple[tuple[int, ...], ...]
    """Indices of the GPUs of each slot."""
    environ: Mapping[str, str]
    """Environment of the agents."""


@dataclass(kw_only=True, eq=False, repr=False)
class LocalWorld:
    """Workers as process groups, nodes as folders."""

    display_interval = 1.0

    place: RunPlace
    stored: StoredRun
    config: RunConfig
    template: WorkerTemplate
    faults: FaultPlan
    wake: Callable[[], None]
    """Called when a worker's state has changed."""
    output: Callable[[str, str], None]
    """Called with (worker, line)."""
    problems: Callable[[], tuple[Problem, ...]] = tuple
    """Problems of `trainrun run` itself."""
    on_deposed: Callable[[], None] = lambda: None
    """Called when another process has written the status, which means that it leads now."""

    def __post_init__(self) -> None:
        self._deposed = False
        self._unwritable = ""
        """Why the last write of the status failed; empty: it did not."""
        self._file = StatusFile(self.place.status)
        # Each worker is its own node, so there are no nodes to avoid.
        self.config = replace(self.config, max_avoided_nodes=0)
        self._workers: dict[str, LocalWorker] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._spawned: list[AgentProcess] = []

    # -------------------------------------------------------------------- the World protocol

    async def observe(self, agents: Agents) -> Seen:
        """Gather the facts of one pass; all are in memory, since we hold the lock."""
        observation = Observation(
            now=datetime.now(UTC),
            generation=self.stored.generation,
            status=self.stored.status,
            workers=tuple(w.fact(agents.contact(w.name)) for w in self._workers.values()),
            listening_for=agents.listening_for,
            ordered=agents.ordered,
            last_words=agents.last_words,
            problems=self.problems(),
        )
        return Seen(observation=observation, config=self.config)

    async def write_status(self, status: TrainRunStatus) -> None:
        """Write the status file; blocks for an fsync (milliseconds)."""
        try:
            self.stored = self._file.replace(replace(self.stored, status=status))
        except StatusConflict:
            # The other process's status is not read here, so that nothing is written over it.
            self._deposed = True
            self.on_deposed()
            raise
        except StatusUnwritable as error:
            self._unwritable = str(error).partition(";")[0]
            raise
        self._unwritable = ""

    async def apply(self, action: Action) -> None:
        """Carry out one action."""
        match action:
            case CreateWorker():
                await self._create(action)
            case DeleteWorker():
                self._delete(action.name)
            case DeleteRun():
                pass  # there is no object to delete; the last status stays readable

    # --------------------------------------------------------------- for `trainrun run` alone

    @property
    def status(self) -> TrainRunStatus:
        """The last written status."""
        return self.stored.status

    @property
    def storage_trouble(self) -> str:
        """Why nothing can be saved now; empty while no problem is known."""
        reasons = (worker.away for worker in self._workers.values() if not worker.ended)
        return self._unwritable or next(filter(None, reasons), "")

    def take_over(self) -> int:
        """Kill leftover processes of an earlier leader; returns how many there were.

        Workers of the attempt that it was running are reported as interrupted.
        """
        ended = kill_all(self.place.nodes)
        status = self.stored.status
        record = status.start_record
        if record is None or status.finished:
            return ended
        for slot, creation in enumerate(record.roster):
            worker = self._worker(slot, creation, record.template_hash)
            worker.ended = True
            if status.ending is None:  # otherwise the attempt had already ended for another reason
                worker.lose(
                    Cause.INTERRUPTED,
                    f"the process that ran `trainrun run` ended; {done_again(status)}",
                )
            self._workers[worker.name] = worker
        return ended

    def suspend(self, *, save: bool = True) -> None:
        """Behave as if spec.suspend were true: save, stop, exit; without `save` skip the saving."""
        config = replace(self.config, suspend=True)
        self.config = config if save else replace(config, on_notice="Stop")
        self.wake()

    def heartbeat(self, state: AgentState) -> None:
        """Record the worker's state, and let faults strike that are due."""
        worker = self._workers.get(state.worker)
        if worker is None:
            return  # deleted meanwhile
        away = (problem.message for problem in state.problems if problem.type == STORE_AWAY)
        worker.away, worker.trains = next(away, ""), state.phase == "Running"
        for planned, delay in self.faults.reached(state):
            if delay:
                loop = asyncio.get_running_loop()
                self._timers.append(loop.call_later(delay, self._strike, planned))
            else:
                self._strike(planned)

    def close(self) -> None:
        """SIGKILL all remaining processes of the run, unless another process leads it by now."""
        for timer in self._timers:
            timer.cancel()
        if not self._deposed:
            kill_all(self.place.nodes)
        for agent in self._spawned:
            agent.close()

    def tidy_up(self) -> None:
        """After the run is over: keep the workers' output, remove staged files and downloads."""
        for folder in self.place.nodes.glob("*/"):
            _clear(folder)
        shutil.rmtree(self.place.cache, ignore_errors=True)

    # ------------------------------------------------------------------------------ workers

    async def _create(self, action: CreateWorker) -> None:
        if action.name in self._workers:
            return
        worker = self._worker(action.slot, action.created_for, action.template_hash)
        worker.folder.mkdir(parents=True, exist_ok=True)
        _clear(worker.folder, keep=())
        worker.agent = await AgentProcess.spawn(
            self._agent_config(worker),
            environ=self.template.environ,
            on_line=lambda line: self.output(worker.name, line),
            on_exit=lambda code: self._ended(worker, code),
        )
        self._spawned.append(worker.agent)
        self._workers[worker.name] = worker
        self.wake()

    def _worker(self, slot: int, creation: int, template_hash: str) -> LocalWorker:
        name = worker_name(self.config, slot=slot, created_for=creation)
        return LocalWorker(
            name=name,
            slot=slot,
            created_for=creation,
            template_hash=template_hash,
            folder=self.place.nodes / name,
        )

    def _agent_config(self, worker: LocalWorker) -> AgentConfig:
        return replace(
            self.template.agent,
            slot=worker.slot,
            worker=worker.name,
            created_for=worker.created_for,
            node=worker.folder.name,
            directory=str(worker.folder),
            gpus=self.template.gpus[worker.slot],
            grace_seconds=self.faults.grace_of(worker.slot),
            faults=self.faults.kills_of(worker.slot),
            tell_at=self.faults.steps,
        )

    def _ended(self, worker: LocalWorker, code: int) -> None:
        worker.ended = True
        worker.exit_code = code
        # Its processes die with it, but grandchildren in their own sessions may not.
        kill_all(worker.folder)
        self.wake()

    def _delete(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        if worker is None:
            return
        if worker.agent is not None:
            worker.agent.kill()
        _clear(worker.folder)
        self.wake()

    # ------------------------------------------------------------------------------- faults

    def _strike(self, planned: PlannedFault) -> None:
        """Hit the worker of the fault's rank, if it trains and the fault has not struck."""
        hit = (w for w in self._workers.values() if w.slot == planned.slot and w.stays)
        worker = next((w for w in hit if w.trains), None)
        if worker is None or worker.agent is None:
            return  # try again with the next heartbeat that reports the step
        fault = planned.fault
        match fault.kind:
            case "kill" | "hang":
                number = signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP
                agent, strike = worker.agent.pid, planned.strike
                signal_child(number, agent, worker.folder, rank=fault.rank, if_=strike)
            case "preempt":
                if planned.strike():
                    self._preempt(worker, worker.agent, fault.grace)
            case "node-loss":
                if planned.strike():
                    when = f"step {fault.step}" if fault.after is None else f"{fault.after:g} s"
                    lost = f"was lost by --fault (rank {fault.rank}, {when})"
                    worker.lose(Cause.NODE_LOST, f"node {worker.folder.name} {lost}")
                    worker.agent.kill()
                    shutil.rmtree(worker.folder, ignore_errors=True)
        self.wake()

    def _preempt(self, worker: LocalWorker, agent: AgentProcess, grace: float) -> None:
        reason = f"preempted by --fault, {grace:.0f} s until its end"
        worker.announce(Notice(reason=reason, remaining=grace))
        agent.notify()
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(grace, self._take_away, worker, agent))

    def _take_away(self, worker: LocalWorker, agent: AgentProcess) -> None:
        if not worker.ended:
            worker.lose(Cause.PREEMPTED, f"worker {worker.name} was preempted by --fault")
            agent.kill()


def done_again(status: TrainRunStatus) -> str:
    """Which steps or tasks are repeated, according to the status: the store may have a newer
    commit."""
    record, reached = status.start_record, status.progress.step
    point = record.resume_point if record is not None else None
    saved = [checkpoint.step for checkpoint in (status.checkpoint, point) if checkpoint is not None]
    if status.runs_tasks:
        return "tasks that had not ended run again"
    newest = "" if reached is None else f" (last reported step: {reached})"
    if not saved:
        return f"all steps are repeated, since no commit is known{newest}"
    return f"steps after {max(saved)}, the newest known commit, are repeated{newest}"


def _clear(folder: Path, *, keep: tuple[str, ...] = (OUTPUT_FILE,)) -> None:
    """Remove the content of a worker's folder, except the names in `keep`."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.name in keep:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
