"""Random lives of sweeps: crashes between any two effects, two of each alive, stale views, messages
lost, doubled and late, the store away, users who edit, apply again, delete runs.

`SweepLife(4711).live()` lives a life again.
"""

from __future__ import annotations

import pytest

from tests.support.levels import some
from trainrun_operator.simulation.sweep.life import SweepLife

LIVES = 20
"""Of each test."""


@pytest.mark.parametrize("first", some(range(0, 500, LIVES), quick=1))
def test_whatever_breaks_each_number_is_asked_once_told_once_and_the_sweep_ends(first: int) -> None:
    for seed in range(first, first + LIVES):
        life = SweepLife(seed)

        view = life.live()

        assert view.end is not None, seed
        assert view.asked <= 12, seed


def test_without_faults_every_trial_is_tried_and_the_best_is_the_least_of_all() -> None:
    life = SweepLife(2)

    view = life.live(faults=0)

    assert view.end is not None
    assert view.end.record.reason == "AllTrialsEnded"
    assert view.asked == life.world.config.trials
    assert len(view.sessions) == 1
