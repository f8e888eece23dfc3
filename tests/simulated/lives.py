"""Lives of a run in the simulated world: what breaks when, and how it happens."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from trainrun_operator.core.config import RunConfig
from trainrun_operator.worlds.simulated.worker import SimWorker
from trainrun_operator.worlds.simulated.world import SimWorld, Weather

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
    "dark-node",
    "evict",
    "no-room",
    "refuse",
]
FAULTS: tuple[FaultKind, ...] = get_args(FaultKind)


@dataclass(frozen=True)
class Fault:
    """Something breaks."""

    kind: FaultKind
    at: float
    slot: int
    size: float


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
    faults: tuple[Fault, ...]


def living(life: Life) -> SimWorld:
    """The world of this life, with its faults planned."""
    config = RunConfig(
        name="run",
        uid="uid",
        replicas=life.replicas,
        template_hash="t1",
        checkpoints_uri="file:///storage/run/checkpoints",
        max_failures=life.max_failures,
        max_preemptions=life.max_preemptions,
        heartbeat_timeout=timedelta(seconds=5),
        start_timeout=timedelta(seconds=60),
        flush_timeout=timedelta(seconds=10),
        placement_timeout=timedelta(seconds=20),
    )
    world = SimWorld(
        config=config,
        rng=random.Random(life.seed),
        weather=Weather(loss=life.loss, duplicate=life.duplicate, delay=life.delay),
        hang_on_loss=life.hang,
    )
    for fault in life.faults:
        world.clock.after(fault.at, lambda fault=fault: strike(world, fault))
    world.clock.after(CALM_AFTER, lambda: calm(world))
    return world


def strike(world: SimWorld, fault: Fault) -> None:
    """Let it happen to whatever is there at that moment."""
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
        case "no-room":
            world.room.capacity = int(fault.size * world.config.replicas)
            world.clock.after(60 * fault.size, lambda: setattr(world.room, "capacity", None))
        case "refuse":
            world.refusing = "QuotaExceeded" if fault.size > 0.5 else "Forbidden"
            world.clock.after(60 * fault.size, lambda: setattr(world, "refusing", None))
        case "operator-crash" | "operator-crash-later" | "stale-operator":
            strike_operator(world, fault)
        case _:
            worker = newest(world, fault.slot)
            if worker is not None:
                strike_worker(world, worker, fault)


def strike_operator(world: SimWorld, fault: Fault) -> None:
    if not world.operators:
        return
    operator = world.operators[fault.slot % len(world.operators)]
    if fault.kind == "operator-crash":
        world.crash_operator(operator, back_after=1 + 20 * fault.size)
    elif fault.kind == "operator-crash-later":
        operator.crash_after = int(fault.size * 6)
    else:
        operator.stale_status = True
        world.clock.after(5 + 20 * fault.size, lambda: setattr(operator, "stale_status", False))


def newest(world: SimWorld, slot: int) -> SimWorker | None:
    here = [w for w in world.workers.values() if w.slot == slot % world.config.replicas]
    return max((w for w in here if w.present), key=lambda w: w.created_for, default=None)


def strike_worker(world: SimWorld, worker: SimWorker, fault: Fault) -> None:
    match fault.kind:
        case "kill":
            world.kill_process(worker.agent)
        case "oom":
            world.kill_process(worker.agent, oom=True)
        case "exception":
            world.raise_exception(worker.agent)
        case "node-loss":
            world.lose_node(worker, known_after=20 * fault.size)
        case "preempt":
            world.preempt(worker, grace=1 + 30 * fault.size, known=fault.size > 0.5)
        case "vanish":
            world.vanish(worker)
        case "silence":
            world.silence(worker.agent, 30 * fault.size)
        case "dark-node":
            world.darken(worker, suspected_after=20 * fault.size)
        case "evict":
            world.evict(worker, grace=1 + 30 * fault.size)
        case other:
            raise AssertionError(other)


def calm(world: SimWorld) -> None:
    """Faults stop: the network is good, and one operator is alive, as its Lease sees to.

    Each of several hears a part of the heartbeats only: too few of them, where there are four.
    """
    world.weather = Weather()
    world.store.available = True
    world.room.capacity = world.refusing = None
    for operator in world.operators[1:]:
        world.crash_operator(operator)
    for operator in world.operators:
        operator.stale_status = False
        operator.crash_after = None
    if not world.operators:
        world.add_operator()
