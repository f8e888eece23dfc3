"""What may break in a life, and how it happens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tests.simulation.world.cluster import StartTrouble
from tests.simulation.world.simulation import Simulation
from tests.simulation.world.worker import SimWorker
from trainrun.contract.agent_state import Problem
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import RefusedReason
from trainrun_operator.core.run.causes import Limits

FaultKind = Literal[
    "kill",
    "oom",
    "exception",
    "node-loss",
    "preempt",
    "vanish",
    "silence",
    "store-away",
    "operator-crash",
    "operator-crash-later",
    "second-operator",
    "stale-operator",
    "damage",
    "suspend",
    "template",
    "endpoint",
    "dark-node",
    "evict",
    "no-room",
    "refuse",
    "lost-answer",
    "clock-skew",
    "misread",
    "hand-over",
    "blind",
    "hang",
    "policy",
    "misconfigure",
    "in-use",
    "start-trouble",
    "texts",
    "leave",
    "finish",
    "rendezvous",
    "some-do-not-meet",
    "late-listing",
    "late-parts",
    "restart",
    "stand-still",
    "rotate",
    "fatal",
    "retry",
    "node-short",
    "own-limit",
    "not-read",
    "interrupted",
    "returns",
]
REFUSALS: tuple[RefusedReason, ...] = ("QuotaExceeded", "Forbidden", "Unavailable", "NameTaken")
TROUBLES: tuple[StartTrouble, ...] = get_args(StartTrouble)
RARE: tuple[FaultKind, ...] = ("node-short", "own-limit", "not-read", "interrupted", "returns")
"""Of causes that nothing else has. Drawn in lives of their own: with them the others would be
others."""
FAULTS: tuple[FaultKind, ...] = tuple(kind for kind in get_args(FaultKind) if kind not in RARE)


@dataclass(frozen=True)
class Fault:
    """Something breaks."""

    kind: FaultKind
    at: float
    slot: int
    size: float
    text: str = "ValueError: bad batch"


def strike(world: Simulation, fault: Fault) -> None:
    """Let it happen to whatever is there at that moment."""
    if world.over():
        return
    match fault.kind:
        case "store-away":
            world.store_away(1 + 40 * fault.size)
        case "second-operator":
            world.add_operator()
        case "damage":
            world.damage()
        case "suspend":
            world.suspend(1 + 30 * fault.size)
        case "template":
            world.edit_template()
        case "endpoint":
            world.edit_endpoint()
        case "no-room":
            world.room.capacity = int(fault.size * world.config.replicas)
            world.clock.after(60 * fault.size, lambda: setattr(world.room, "capacity", None))
        case "refuse":
            world.refuse(REFUSALS[fault.slot], 60 * fault.size)
        case "start-trouble":
            world.trouble_starts(TROUBLES[fault.slot], 5 + 60 * fault.size)
        case "misconfigure" | "rotate":
            _refuse(world, fault)
        case "in-use":
            world.store_used(1 + 40 * fault.size)
        case "late-listing":
            world.list_late(1 + 90 * fault.size)
        case "late-parts":
            world.list_parts_late(1 + 60 * fault.size)
        case "restart":
            world.ask_for_restart()
        case "finish":
            world.finish_early()
        case "rendezvous":
            world.unmet, world.unmet_ranks = 1 + int(4 * fault.size), frozenset()
        case "some-do-not-meet":
            ranks = range(world.config.replicas * world.config.processes_per_worker)
            world.unmet = 1 + int(4 * fault.size)
            world.unmet_ranks = frozenset(rank for rank in ranks if rank % 4 == fault.slot % 4)
        case "policy":
            failures: Limits = {"failures": fault.slot - 1}
            beside = {"preemptions": 1} if fault.size < 0.8 else {"startFailures": 1}
            world.edit_limits(failures if fault.size < 0.5 else {**failures, **beside})
        case (
            "operator-crash"
            | "operator-crash-later"
            | "stale-operator"
            | "lost-answer"
            | "clock-skew"
            | "hand-over"
            | "blind"
            | "hang"
            | "interrupted"
        ):
            strike_operator(world, fault)
        case _:
            worker = newest(world, fault.slot)
            if worker is not None:
                strike_worker(world, worker, fault)


def strike_operator(world: Simulation, fault: Fault) -> None:
    if not world.operators:
        return
    operator = world.operators[fault.slot % len(world.operators)]
    if fault.kind in ("operator-crash", "interrupted"):
        if fault.kind == "interrupted":
            world.interrupt()
        world.crash_operator(operator, back_after=1 + 20 * fault.size)
    elif fault.kind == "operator-crash-later":
        operator.crash_after = int(fault.size * 6)
    elif fault.kind == "lost-answer":
        operator.world.answers_lost = 1 + int(fault.size * 3)
    elif fault.kind == "clock-skew":
        operator.world.clock_ahead = 60 * (fault.size - 0.5)
        world.judge.disturbed(60 * abs(fault.size - 0.5))
    elif fault.kind == "hand-over":
        world.hand_over(operator, behind=1 + int(6 * fault.size), seconds=1 + 20 * fault.size)
    elif fault.kind == "blind":
        world.stop_watch(operator, 1 + 20 * fault.size)
    elif fault.kind == "hang":
        world.hang_requests(operator, 1 + 30 * fault.size)
    else:
        operator.stale_status = True
        world.judge.disturbed(5 + 20 * fault.size)
        world.clock.after(5 + 20 * fault.size, lambda: setattr(operator, "stale_status", False))


def newest(world: Simulation, slot: int) -> SimWorker | None:
    here = [w for w in world.workers.values() if w.slot == slot % world.config.replicas]
    return max((w for w in here if w.present), key=lambda w: w.created_for, default=None)


def told_to_end(world: Simulation, worker: SimWorker, fault: Fault) -> None:
    """By its own limits: SIGKILL at once, a second after SIGTERM, or nobody ever says why."""
    if fault.size > 0.6:
        world.tell_to_end(worker)
    else:
        world.end_by_kubelet(worker, Cause.TERMINATED, grace=float(fault.size > 0.3))


def strike_worker(world: Simulation, worker: SimWorker, fault: Fault) -> None:
    match fault.kind:
        case "kill":
            world.kill_process(worker.agent)
        case "oom":
            world.kill_process(worker.agent, oom=True)
        case "exception":
            world.raise_exception(worker.agent, fault.text)
        case "fatal":
            world.raise_exception(worker.agent, "trainrun.FatalError: the data set is empty")
        case "retry":
            world.raise_exception(worker.agent, "trainrun.RetryError: the server is busy")
        case "returns":
            world.returning = 1 + int(2 * fault.size)
            world.kill_process(worker.agent)
        case "node-short":
            grace = 20 * max(fault.size - 0.5, 0.0)  # of a soft threshold
            world.end_by_kubelet(worker, Cause.EVICTED, grace=grace)
        case "own-limit":
            told_to_end(world, worker, fault)
        case "not-read":
            world.raise_exception(worker.agent, "trainrun.AgentRefused: the store cannot be read")
        case "stand-still":
            stand_still(world, worker, fault)
        case "leave":
            world.leave_early(worker.agent)
        case "texts":
            speak(world, worker, fault)
        case "node-loss":
            world.lose_node(worker, known_after=20 * fault.size)
        case "preempt":
            world.preempt(worker, grace=1 + 30 * fault.size, known=fault.size > 0.5)
        case "vanish":
            world.vanish(worker)
        case "silence":
            world.silence(worker.agent, 30 * fault.size)
        case "misread":
            world.misread(worker)
        case "dark-node":
            world.darken(worker, suspected_after=20 * fault.size)
        case "evict":
            world.evict(worker, grace=1 + 30 * fault.size)
        case other:
            raise AssertionError(other)


def stand_still(world: Simulation, worker: SimWorker, fault: Fault) -> None:
    """A rank stands still: for ever where that is noticed, else for a while."""
    config = world.config
    limits = config.progress_timeout, config.first_step_timeout
    learns = config.hang_policy == "Restart"
    if (None not in limits or learns) and fault.size > 0.4:
        world.hang(worker.agent)
    else:
        watched = limits != (None, None) or learns
        world.stall(worker.agent, 3 + 60 * fault.size, watched=watched)


def speak(world: Simulation, worker: SimWorker, fault: Fault) -> None:
    """Its metrics and its warnings are whatever somebody wrote, once it speaks at all."""
    if not worker.agent.sequence:
        return
    long = fault.text * int(1 + 40 * fault.size)
    worker.agent.metrics = {f"{n} {fault.text}": long for n in range(8 * fault.slot)}
    worker.agent.problems = (Problem(type="DiskFull", reason="DiskFull", message=long),)
    world.send(worker.agent)


def _refuse(world: Simulation, fault: Fault) -> None:
    """The store takes nobody's keys, or not those of workers that are made now."""
    if fault.kind == "rotate":
        world.rotate(120 * fault.size)
    else:
        world.misconfigure(20 * fault.size)
