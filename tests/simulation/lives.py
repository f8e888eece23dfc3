"""Lives of a run in the simulated world: what breaks when, and how it happens."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from tests.simulation.earlier import Before, leave_behind
from tests.simulation.striking import Fault, strike
from tests.simulation.world.simulation import Simulation
from tests.simulation.world.training import OnSigterm
from tests.simulation.world.weather import Weather
from tests.support.builders import a_config
from trainrun_operator.api.run.rules import FailureRule
from trainrun_operator.api.run.spec import FailurePolicy, OnNotice
from trainrun_operator.core.run.causes import BUDGETS, limits_of
from trainrun_operator.core.run.incidents import ledger

CALM_AFTER = 120.0
"""Virtual seconds after which nothing breaks any more."""

PATIENCE = 3600.0
"""Virtual seconds within which a run must have ended when faults have stopped."""

OnExisting = Literal["Resume", "Fail", "StartFresh"]


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
    progress_timeout: float | None = None
    first_step_timeout: float | None = None
    on_existing: OnExisting = "Resume"
    before: Before = "Nothing"
    hang_policy: Literal["Observe", "Restart"] = "Observe"
    upload_every: float | None = None
    buddy: bool = False


def living(life: Life, make: Callable[..., Simulation] = Simulation) -> Simulation:
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
        rules=life.rules,
        force_delete_pods=life.force_delete,
        heartbeat_timeout=timedelta(seconds=5),
        start_timeout=timedelta(seconds=60),
        flush_timeout=timedelta(seconds=10),
        upload_every=_seconds(life.upload_every),
        buddy=life.buddy,
        on_notice=life.on_notice,
        grace=timedelta(seconds=life.grace),
        placement_timeout=timedelta(seconds=20),
        active_deadline=timedelta(seconds=life.deadline) if life.deadline else None,
        ttl_after_finished=timedelta(seconds=life.ttl) if life.ttl is not None else None,
        progress_timeout=_seconds(life.progress_timeout),
        first_step_timeout=_seconds(life.first_step_timeout),
        on_existing=life.on_existing,
        hang_policy=life.hang_policy,
    )
    world = make(
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
    leave_behind(world, life.before)
    for fault in life.faults:
        world.clock.after(fault.at, lambda fault=fault: strike(world, fault))
    if life.raised_after is not None:
        world.tended = True
        look_after(world, life.raised_after)
    world.clock.after(CALM_AFTER, lambda: calm(world))
    world.clock.after(CALM_AFTER, lambda: tend(world))
    return world


def _seconds(number: float | None) -> timedelta | None:
    return timedelta(seconds=number) if number is not None else None


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
    let_go(world)
    world.clock.after(60.0, lambda: tend(world))


def let_go(world: Simulation) -> None:
    """Its user attaches a debugger to ranks that never got to a first step while others did: what
    they do no timeout judges."""
    for agent in world.gang(world.status.attempt):
        training = agent.training
        for rank in tuple(training.hung) if training is not None else ():
            if training is not None and training.steps[rank] <= training.begin:
                world.release(agent, training, rank)


def judged(world: Simulation) -> list[str]:
    """What was wrong in the whole life."""
    world.live(PATIENCE)
    if world.over():
        calm(world)
        world.come_to_rest()
    return world.judge.closing()


def calm(world: Simulation) -> None:
    """Faults stop: the network is good, and one operator is alive, as its Lease sees to.

    Each of several hears a part of the heartbeats only: too few of them, where there are four.
    """
    world.weather = Weather()
    world.store.available = True
    world.misreading.clear()
    world.room.capacity = world.refusing = world.start_trouble = None
    world.unmet = world.returning = 0
    world.list_all()
    world.store.refuses, world.store.used_by = False, ""
    world.wrong_secret = False
    for operator in world.operators[1:]:
        world.crash_operator(operator)
    for operator in world.operators:
        operator.stale_status = operator.blind = False
        operator.crash_after = None
    if not world.operators:
        world.add_operator()
