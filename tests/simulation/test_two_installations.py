"""Two installations of the operator watch one run, whose life one of them leads."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import HOUR, a_life, runs, until, worker
from tests.support.levels import some
from trainrun_operator.core.run.boundary import Installation, name_of

ONE, OTHER = Installation(name="one", key="k1"), Installation(name="other", key="k2")


@pytest.mark.case("operator", "Two installations of the operator watch one namespace")
@pytest.mark.parametrize("seed", some(range(5), quick=1))
def test_the_first_write_wins_and_the_other_one_does_nothing_for_the_whole_life(seed: int) -> None:
    world = a_life(seed=seed, installation=ONE)
    world.add_operator(OTHER)
    until(world, lambda: world.status.holder)
    (left_out,) = [
        each for each in world.operators if each.installation.name != name_of(world.status.holder)
    ]
    left_out.crash_after = 0  # with its first effect it would die

    until(world, lambda: runs(world, 1))
    world.raise_exception(worker(world, 1).agent)
    world.live(HOUR)

    assert world.status.phase == "Succeeded"
    assert len(world.status.incidents) == 1
    assert left_out.alive
