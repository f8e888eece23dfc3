"""No text and no size stops the passes over a run."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import a_config, a_life, until, worker
from trainrun.contract.agent_state import Problem


@pytest.mark.case("script", "Output or exceptions contain half characters or escapes")
def test_an_exception_with_half_a_character_in_its_text_is_a_crash_like_any_other() -> None:
    world = a_life()
    world.live(12)
    world.raise_exception(worker(world, 1).agent, "ValueError: bad batch \udc80")
    world.live(600)
    assert world.judge.closing() == []
    assert world.status.phase == "Succeeded"


@pytest.mark.slow
def test_a_status_at_its_limit_comes_to_rest() -> None:
    world = a_life(
        config=a_config(replicas=20, limits={"failures": -1, "preemptions": -1}), total_steps=100
    )
    for attempt in range(1, 5):
        until(world, lambda a=attempt: world.judge.records.keys() >= {a})
        world.live(world.clock.now + 4)
        if attempt < 4:
            world.raise_exception(worker(world, 1).agent, "ValueError: " + "損" * 1000)
    for agent in world.gang(4):
        agent.metrics = {f"{n}" + "損" * 100: "損" * 200 for n in range(32)}
    kinds = ("StorageUnavailable", "CheckpointWaiting", "ResumeIgnored", "DiskFull", "A", "B")
    worker(world, 7).agent.problems = tuple(
        Problem(type=kind, reason="Unavailable", message="損" * 1000) for kind in kinds
    )
    until(world, lambda: world.judge.mistakes or len(world.status.conditions) > 4)
    world.live(world.clock.now + 2)
    assert world.judge.mistakes == []
