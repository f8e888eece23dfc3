"""Which workers of the newest attempt are lost, and the evidence of each about the cause.

Layer: core. A loss is a fact about one slot; `attribution` makes one incident of all losses of an
attempt. Invariant: a worker that the operator itself deletes is not a loss. The status names these
workers (see `planner`), so every operator knows them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from trainrun.contract.agent_state import REFUSED, AgentState, Notice, ProcessExit
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import WorkerFact, WorkerLoss
from trainrun_operator.core.run.causes import SIGNAL_NAMES
from trainrun_operator.core.run.incidents.attempt_progress import process_trained
from trainrun_operator.core.run.incidents.repeats import remedy_of
from trainrun_operator.core.run.view import (
    STORE_AWAY,
    View,
    max_step,
    notice_of,
    once,
)

SIGABRT, SIGTERM = 6, 15
SIGTERMED = 128 + SIGTERM
"""Exit code of an agent after SIGTERM; its last heartbeat may not have arrived."""

BROKEN_COLLECTIVE = (
    "connection reset",
    "connection closed by peer",
    "connection refused",
    "broken pipe",
    "connection was aborted",
    "aborted due to",
    "socket timeout",
    "no route to host",
    "connection timed out",
    "network is unreachable",
    "connectfullmesh failed",
    "timed out waiting",
    "failed to recv, got 0 bytes",
    "ncclremoteerror",
    "ncclsystemerror",
    "nccl communicator was aborted",
    "watchdog caught collective operation timeout",
)
"""Texts by which gloo, NCCL and c10d stores report that a peer is gone."""

TIMED_OUT = ("timed out", "timeout", "waiting for clients")
"""Those of the texts above and below where the peer may be alive, but late."""

RENDEZVOUS_ERRORS = (
    "address already in use",
    "eaddrinuse",
    "failed to bind",
    "failed to listen",
    "failed to start rpc server",  # JAX's coordinator, whose port is the next one
    "client socket has timed out",
    "client socket has failed to connect",
    "waiting for clients",
)
"""Texts for a c10d TCPStore, or JAX's coordinator, that could not be hosted or reached."""

STORE_ERRORS = ("disterror", "distnetworkerror", "diststoreerror")
"""Exceptions of a c10d store that was not reached, or was lost later."""

SEEN_BY_WORLD = "what the cluster reports about the worker and its node"
"""`known_by` of losses that the world reports."""

DECLARED_CAUSES = {
    "trainrun.FatalError": Cause.FATAL_ERROR,
    "trainrun.RetryError": Cause.RETRY_ERROR,
}
"""Exceptions by which a script decides itself what happens to the run."""

STORAGE_ERRORS = ("agentrefused", "stagingfailed")
"""Exceptions of the worker library: store not readable, or the worker's disk not writable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The evidence of one slot that its worker is lost."""

    slot: int
    cause: Cause
    rank: int | None = None
    worker: str = ""
    node: str = ""
    exit_code: int | None = None
    signalled: bool = False
    container: str = ""
    exception: tuple[str, ...] = ()
    """Its class, and the base classes of that."""
    raised_at: str = ""
    known_by: str = ""
    """The source of this knowledge."""
    message: str
    last_lines: tuple[str, ...] = ()
    hang: str = ""
    """Of a hang: its class, one of four."""
    evidence: str = ""
    """Where the stacks of all ranks are stored."""
    collateral: bool = False
    """Whether it may only be the consequence of another worker's loss."""
    age: timedelta = timedelta(0)
    """How long ago it happened."""
    attributed: bool = True
    """Whether its slot is to blame; False: the culprit is unknown."""

    @property
    def waited(self) -> bool:
        """Whether its rank waited for a peer until a timeout."""
        for_others = self.collateral or self.cause is Cause.RENDEZVOUS_FAILED
        output = " ".join(self.last_lines) if self.signalled else self.message
        return for_others and _matches(output, TIMED_OUT)


@once
def losses_of(view: View) -> tuple[Loss, ...]:
    """The losses of the newest attempt's roster, in slot order."""
    found = (loss_of(view, slot, worker) for slot, worker in enumerate(view.roster))
    return tuple(loss for loss in found if loss is not None)


def loss_of(view: View, slot: int, worker: WorkerFact | None) -> Loss | None:
    """The loss of this slot's worker; None without evidence of one."""
    ending = view.status.ending
    dismissed = ending is not None and ending.has_dismissed(slot)
    if worker is None:
        return None if dismissed else _gone(view, slot)
    if worker.loss is not None:
        return _from_world(worker, worker.loss)
    if dismissed:
        return _silent(worker) if view.is_cut_off(worker) else None
    agent = view.joined(worker)
    if agent is not None and (failed := _worst_exit(agent)) is not None:
        return _failed(worker, agent, failed, view)
    if worker.phase == "Ended":
        return _ended(worker)
    if view.is_silent(worker) or view.is_cut_off(worker):
        return _silent(worker)
    return _never_joined(view, worker)


def _from_world(worker: WorkerFact, seen: WorkerLoss) -> Loss:
    """The loss that the world reports."""
    loss = loss_at(worker, seen.cause, seen.message, age=seen.age, known_by=SEEN_BY_WORLD)
    return replace(loss, container=seen.container, exit_code=seen.exit_code)


def _worst_exit(agent: AgentState) -> ProcessExit | None:
    """The process that explains the worker's failure best; ordered stops explain nothing."""
    failed = [end for end in agent.exits if end.failed]

    def explains(end: ProcessExit) -> tuple[bool, bool, bool, bool, float]:
        return (
            end.oom,
            declared_cause(end) is not None,
            not _is_broken_collective(end),
            end.signal is not None,
            end.age,
        )

    return max(failed, key=explains, default=None)


def kinds_of(end: ProcessExit) -> tuple[str, ...]:
    """The exception's class and its bases; only the class where its process did not report them."""
    if end.kinds or not end.exception:
        return end.kinds
    return (end.exception.partition(":")[0][:120],)


def declared_cause(end: ProcessExit) -> Cause | None:
    """The cause that its script declared itself; None: none."""
    return next((DECLARED_CAUSES[kind] for kind in kinds_of(end) if kind in DECLARED_CAUSES), None)


def _is_broken_collective(end: ProcessExit) -> bool:
    """Whether it blames a lost peer: by an exception or, as NCCL's watchdog does, by SIGABRT."""
    if end.signal == SIGABRT:
        return any(_matches(line, BROKEN_COLLECTIVE) for line in end.last_lines)
    return end.signal is None and _matches(end.exception, BROKEN_COLLECTIVE)


def _gone(view: View, slot: int) -> Loss:
    name, asked = view.roster_names[slot], view.status.save_asked
    noticed = asked is not None and slot in asked.leaving
    how = "taken away after a notice" if noticed else "deleted or replaced from outside"
    # An object does not vanish by itself: the training was not at fault.
    message = f"worker {name} was {how}"
    seen = "the worker's object is gone, and the operator did not delete it"
    return Loss(slot=slot, cause=Cause.PREEMPTED, worker=name, message=message, known_by=seen)


def _ended(worker: WorkerFact) -> Loss:
    """The loss of a worker that ended, of which no process failed."""
    if worker.notice is not None:
        return taken_away(worker, worker.notice)
    notice = notice_of(worker)
    if notice is None and worker.exit_code == SIGTERMED:
        notice = Notice(reason="SIGTERM")
    if notice is not None:
        return got_sigterm(worker, notice)
    code = "" if worker.exit_code is None else f" with exit code {worker.exit_code}"
    message = f"worker {worker.name} ended{code} without an order"
    return loss_at(worker, Cause.UNKNOWN, message, exit_code=worker.exit_code)


def taken_away(worker: WorkerFact, notice: Notice) -> Loss:
    """The loss of a worker whose notice the world knows."""
    message = f"worker {worker.name} was taken away after a notice ({notice.reason})"
    return loss_at(worker, Cause.PREEMPTED, message)


def got_sigterm(worker: WorkerFact, notice: Notice) -> Loss:
    """The loss of a worker whose notice only its agent knows.

    A SIGTERM does not name its sender: a leaving node, a probe, a limit of the pod, a process.
    """
    message = f"worker {worker.name} got SIGTERM from an unknown sender"
    age, seen = timedelta(seconds=notice.age), "the signal that its agent received"
    return loss_at(worker, Cause.TERMINATED, message, age=age, known_by=seen)


def _failed(worker: WorkerFact, agent: AgentState, end: ProcessExit, view: View) -> Loss:
    cause = _cause_of(end, agent, view)
    notice = notice_of(worker)
    announced = notice is not None and notice.age >= end.age
    if announced and end.signal is not None and not end.oom:
        cause = Cause.TERMINATED if worker.notice is None else Cause.PREEMPTED
    collateral = cause is Cause.APP_ERROR and _is_broken_collective(end)
    return Loss(
        slot=worker.slot,
        cause=cause,
        rank=end.rank,
        worker=worker.name,
        node=worker.node or agent.node,
        exit_code=end.code if end.signal is None else 128 + end.signal,
        signalled=end.signal is not None,
        container=view.config.container,
        exception=kinds_of(end),
        raised_at=end.raised_at,
        message=(_describe(end) + _more(view, end, collateral=collateral))[:1000],
        known_by=_known_by(end, announced=cause in (Cause.PREEMPTED, Cause.TERMINATED)),
        last_lines=end.last_lines,
        collateral=collateral,
        age=timedelta(seconds=end.age),
    )


def _cause_of(end: ProcessExit, agent: AgentState, view: View) -> Cause:
    if end.oom:
        return Cause.OUT_OF_MEMORY
    declared = declared_cause(end)
    if declared is not None:
        return declared
    if end.signal is not None:
        return Cause.APP_ERROR
    if end.exception.startswith("StartFailed:"):
        return Cause.START_FAILED
    if _matches(end.exception.partition(":")[0], STORAGE_ERRORS):
        refused = any(p.type == STORE_AWAY and p.reason == REFUSED for p in agent.problems)
        return Cause.STORAGE_REFUSED if refused else Cause.STORAGE_ERROR
    if not has_stepped(view) and _rendezvous_failed(end, agent, view):
        return Cause.RENDEZVOUS_FAILED
    return Cause.APP_ERROR


def _rendezvous_failed(end: ProcessExit, agent: AgentState, view: View) -> bool:
    """Ranks may look for each other for half an hour: then only the text decides."""
    if _matches(end.exception, RENDEZVOUS_ERRORS):
        return True
    went_away = process_trained(view, agent, ended=end.age) and _is_broken_collective(end)
    return _matches(end.exception, STORE_ERRORS) and not went_away


def has_stepped(view: View) -> bool:
    """Whether a process of the newest attempt has reported a step."""
    return any(max_step(agent) is not None for agent in view.agents)


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    lower = text.lower()
    return any(pattern in lower for pattern in patterns)


def _describe(end: ProcessExit) -> str:
    if end.oom:
        return f"rank {end.rank} was killed by the kernel: out of memory"
    if end.signal is not None:
        name = SIGNAL_NAMES.get(end.signal, f"signal {end.signal}")
        before = f" after {end.exception}" if end.exception else ""
        return f"rank {end.rank} was killed by {name}{before}"
    what = end.exception or "no exception was seen"
    if not end.exception and end.last_lines:  # which need not be the reason
        what = f"{what}; the last line of its output: {end.last_lines[-1]}"
    return f"rank {end.rank} exited with code {end.code}: {what}"


def _more(view: View, end: ProcessExit, *, collateral: bool) -> str:
    """The end of the message: who may have caused it, or what to do about a common error."""
    if collateral:
        return _ended_before(view, end)
    error = end.exception or SIGNAL_NAMES.get(end.signal or 0, " ".join(end.last_lines))
    remedy = "" if end.oom else remedy_of(error)
    return f"; {remedy}" if remedy else ""


def _known_by(end: ProcessExit, *, announced: bool) -> str:
    """The source of this knowledge."""
    if end.oom:
        return "the OOM counter of the worker's memory cgroup, which rose when the process died"
    if announced:
        return "a notice that came before the signal"
    if end.signal is not None:
        return "the signal in the process's exit status, which its agent has read"
    if end.kinds:
        return "the exception that the process reported to its agent before it ended"
    if end.exception:
        return "the last traceback in the process's output"
    return "the process's exit code, which its agent has read"


def _ended_before(view: View, end: ProcessExit) -> str:
    """Names a rank that ended well before a collective broke: it may have been needed there."""
    others = (other for agent in view.heard for other in agent.exits)
    left = [other for other in others if other.code == 0 and other.age > end.age]
    first = max(left, key=lambda other: other.age, default=None)
    return f"; rank {first.rank} had ended with exit code 0 before" if first is not None else ""


def _silent(worker: WorkerFact) -> Loss:
    silent = worker.silent_for
    message = f"worker {worker.name} has sent no heartbeat for {silent.total_seconds():.0f} s"
    if not worker.suspect_node:
        seen = "missing heartbeats"
        return loss_at(worker, Cause.SILENT, message, age=silent, known_by=seen)
    message = f"{message}, and its node {worker.node} looks lost: {worker.suspect_node}"
    seen = "missing heartbeats, and the state of the node"
    return loss_at(worker, Cause.NODE_LOST, message, age=silent, known_by=seen)


def _never_joined(view: View, worker: WorkerFact) -> Loss | None:
    """The loss of a worker in the start record that never started its processes."""
    record = view.running
    if record is None or view.joined(worker) is not None or view.is_unreadable(worker):
        return None  # it may have started long ago: its agent cannot be read
    if view.is_unknown(worker):
        return None  # so may one that cannot reach this operator
    waited = min(view.observation.now - record.time, view.observation.listening_for)
    if waited <= view.config.start_timeout:
        return None
    message = (
        f"worker {worker.name} did not start attempt {record.attempt} within "
        f"health.startTimeout ({view.config.start_timeout.total_seconds():.0f} s)"
    )
    return loss_at(worker, Cause.START_FAILED, message, age=waited)


def loss_at(
    worker: WorkerFact,
    cause: Cause,
    message: str,
    *,
    age: timedelta = timedelta(0),
    exit_code: int | None = None,
    known_by: str = "",
) -> Loss:
    """A loss of this worker."""
    return Loss(
        slot=worker.slot,
        cause=cause,
        worker=worker.name,
        node=worker.node,
        exit_code=exit_code,
        known_by=known_by,
        message=message[:1000],
        age=age,
    )


def blamed(view: View, loss: Loss, slot: int, rank: int | None) -> Loss:
    """The loss with this slot's worker to blame, or one rank of it."""
    worker, name = view.roster[slot], view.roster_names[slot]
    node = worker.node if worker is not None else ""
    return replace(loss, slot=slot, rank=rank, worker=name, node=node, attributed=True)
