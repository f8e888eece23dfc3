"""Lives of a run in the simulated world: what breaks when, and how it happens."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, get_args

from tests.support.builders import a_config
from trainrun.contract.agent_state import Problem
from trainrun_operator.api.run.rules import FailureRule
from trainrun_operator.api.run.spec import FailurePolicy, OnNotice
from trainrun_operator.core.run.causes import BUDGETS, Limits, limits_of
from trainrun_operator.core.run.incidents import ledger
from trainrun_operator.core.run.observation import RefusedReason
from trainrun_operator.core.run.rules import rules_of
from trainrun_operator.simulation.cluster import StartTrouble
from trainrun_operator.simulation.simulation import Simulation
from trainrun_operator.simulation.training import OnSigterm
from trainrun_operator.simulation.weather import Weather
from trainrun_operator.simulation.worker import SimWorker

CALM_AFTER = 120.0
"""Virtual seconds after which nothing breaks any more."""

PATIENCE = 3600.0
"""Virtual seconds within which a run must have ended when faults have stopped."""

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
]
REFUSALS: tuple[RefusedReason, ...] = ("QuotaExceeded", "Forbidden", "Unavailable", "NameTaken")
TROUBLES: tuple[StartTrouble, ...] = get_args(StartTrouble)
FAULTS: tuple[FaultKind, ...] = get_args(FaultKind)


@dataclass(frozen=True)
class Fault:
    """Something breaks."""

    kind: FaultKind
    at: float
    slot: int
    size: float
    text: str = "ValueError: bad batch"


@dataclass(frozen=True)
class Life:
    """Everything that a simulated life depends on: it can be replayed from its repr."""

    seed: int
    replicas: int
    max_failures: int
    max_preemptions: int | None
    loss: float
    duplicate: float
    delay: float
    hang: bool
    grace: float
    faults: tuple[Fault, ...]
    deadline: float | None = None
    ttl: float | None = None
    processes: int = 1
    """Of each worker."""
    together: bool = True
    says_finished: bool = False
    asks: bool = True
    on_notice: OnNotice = "Auto"
    on_sigterm: OnSigterm = "Dies"
    max_start_failures: int | None = None
    no_progress_limit: int = 0
    force_delete: bool = True
    window: float | None = None
    raised_after: float | None = None
    """So long after it has failed its user raises what has ended it; once."""
    rules: tuple[FailureRule, ...] = ()


def living(life: Life) -> Simulation:
    """The world of this life, with its faults planned."""
    config = a_config(
        name="run",
        uid="uid",
        replicas=life.replicas,
        processes_per_worker=life.processes,
        template_hash="t1",
        checkpoints_uri="file:///storage/run/checkpoints",
        limits=limits_of(
            FailurePolicy(
                max_failures=life.max_failures,
                max_preemptions=life.max_preemptions,
                max_start_failures=life.max_start_failures,
            )
        ),
        window=timedelta(seconds=life.window) if life.window else None,
        no_progress_limit=life.no_progress_limit,
        rules=rules_of(life.rules),
        force_delete_pods=life.force_delete,
        heartbeat_timeout=timedelta(seconds=5),
        start_timeout=timedelta(seconds=60),
        flush_timeout=timedelta(seconds=10),
        on_notice=life.on_notice,
        grace=timedelta(seconds=life.grace),
        placement_timeout=timedelta(seconds=20),
        active_deadline=timedelta(seconds=life.deadline) if life.deadline else None,
        ttl_after_finished=timedelta(seconds=life.ttl) if life.ttl is not None else None,
    )
    world = Simulation(
        config=config,
        rng=random.Random(life.seed),
        weather=Weather(loss=life.loss, duplicate=life.duplicate, delay=life.delay),
        hang_on_loss=life.hang,
        grace=life.grace,
        together=life.together,
        says_finished=life.says_finished,
        asks=life.asks,
        on_sigterm=life.on_sigterm,
    )
    for fault in life.faults:
        world.clock.after(fault.at, lambda fault=fault: strike(world, fault))
    if life.raised_after is not None:
        world.tended = True
        look_after(world, life.raised_after)
    world.clock.after(CALM_AFTER, lambda: calm(world))
    world.clock.after(CALM_AFTER, lambda: tend(world))
    return world


def look_after(world: Simulation, seconds: float) -> None:
    """Its user sees sooner or later that it has failed, and lets it go on."""
    if world.status.is_true("Failed"):
        world.clock.after(seconds, lambda: raise_limit(world))
    elif world.status.finished or world.deleted:
        world.tended = False
    else:
        world.clock.after(0.5, lambda: look_after(world, seconds))


def raise_limit(world: Simulation) -> None:
    """The field that has ended it gets more room."""
    failed, config = world.status.condition("Failed"), world.config
    reason = failed.reason if failed is not None else ""
    if reason == "DeadlineExceeded" and config.active_deadline is not None:
        world.edit(replace(config, active_deadline=config.active_deadline + timedelta(minutes=20)))
    elif reason == "NoProgress":
        world.edit(replace(config, no_progress_limit=world.status.without_progress + 2))
    for name, budget in BUDGETS.items():
        if reason == ledger.exceeded(budget):
            more = budget.used(world.status.failures) + 1
            world.edit_limits({**config.limits, name: more})
    wait_until_it_goes_on(world)


def wait_until_it_goes_on(world: Simulation) -> None:
    """An operator may not hear of the edit for a while; other verdicts stay."""
    failed = world.status.condition("Failed")
    taken_back = {"DeadlineExceeded", "NoProgress", *map(ledger.exceeded, BUDGETS.values())}
    world.tended = (
        failed is not None
        and failed.status == "True"
        and failed.reason in taken_back
        and not world.deleted
    )
    if world.tended:
        world.clock.after(1.0, lambda: wait_until_it_goes_on(world))


def tend(world: Simulation) -> None:
    """Its user does what the run asks for where no second node can read a checkpoint."""
    asked = world.status.condition("CheckpointSuspect")
    if asked is not None and asked.reason == "NoSecondReader":
        damaged = {c for c, entry in world.store.checkpoints.items() if entry.damaged}
        world.store.bad |= damaged
    world.clock.after(60.0, lambda: tend(world))


def judged(world: Simulation) -> list[str]:
    """What was wrong in the whole life."""
    world.live(PATIENCE)
    if world.over():
        calm(world)
        world.come_to_rest()
    return world.judge.closing()


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
        case "misconfigure":
            world.misconfigure(20 * fault.size)
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
    if fault.kind == "operator-crash":
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


def strike_worker(world: Simulation, worker: SimWorker, fault: Fault) -> None:
    match fault.kind:
        case "kill":
            world.kill_process(worker.agent)
        case "oom":
            world.kill_process(worker.agent, oom=True)
        case "exception":
            world.raise_exception(worker.agent, fault.text)
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


def speak(world: Simulation, worker: SimWorker, fault: Fault) -> None:
    """Its metrics and its warnings are whatever somebody wrote, once it speaks at all."""
    if not worker.agent.sequence:
        return
    long = fault.text * int(1 + 40 * fault.size)
    worker.agent.metrics = {f"{n} {fault.text}": long for n in range(8 * fault.slot)}
    worker.agent.problems = (Problem(type="DiskFull", reason="DiskFull", message=long),)
    world.send(worker.agent)


def calm(world: Simulation) -> None:
    """Faults stop: the network is good, and one operator is alive, as its Lease sees to.

    Each of several hears a part of the heartbeats only: too few of them, where there are four.
    """
    world.weather = Weather()
    world.store.available = True
    world.misreading.clear()
    world.room.capacity = world.refusing = world.start_trouble = None
    world.unmet = 0
    world.list_all()
    world.store.refuses, world.store.used_by = False, ""
    for operator in world.operators[1:]:
        world.crash_operator(operator)
    for operator in world.operators:
        operator.stale_status = operator.blind = False
        operator.crash_after = None
    if not world.operators:
        world.add_operator()
