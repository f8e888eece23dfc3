"""Random programs, with deaths of everything: promises that hold in each life."""

from __future__ import annotations

import pytest

from tests.support.levels import examples
from tests.tasks.simulation.world import live

LIVES = 500
PORTIONS = 10


@pytest.mark.case("tasks", "The answer to a written batch of the task log is lost")
@pytest.mark.case("tasks", "After a partition two drivers write one task log")
@pytest.mark.parametrize("portion", range(PORTIONS))
def test_no_life_breaks_a_promise(portion: int) -> None:
    """One commit per generation, bounds kept, values as in an undisturbed life, and an end."""
    for seed in range(portion, examples(LIVES), PORTIONS):
        live(seed)
