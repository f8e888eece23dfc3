"""What may go wrong in a life of a sweep, at any moment, and what its user does meanwhile.

Layer: simulation.
"""

from __future__ import annotations

from tests.simulation.world.sweep.life import Quarters, SweepLife
from tests.simulation.world.sweep.sweep_object import (
    BASE,
    MOST_TRIALS,
    edited_spec,
    taken_up_again,
)
from tests.simulation.world.sweep.trials import GANG
from trainrun.sweep.view import SweepView

RARELY = 0.01
"""How likely it is in a large sweep that something may break before a turn."""
LENGTHS = (60, 200, 700)
"""Turns with faults."""


def live(seed: int) -> tuple[SweepLife, SweepView]:
    """A whole life with faults, and its log."""
    life = SweepLife(seed)
    random = life.random
    _make_unreliable(life)
    for _ in range(random.choice(LENGTHS)):
        _break(life)
        _use(life)
        life.turn()
    return life, life.end()


def live_large(seed: int, *, trials: int, at_once: int) -> SweepLife:
    """The life of a sweep of so many trials, whose user leaves it alone; something breaks for
    every few trials, and one in eight of their steps fails."""
    spec = {
        **BASE,
        "sampler": {"name": "Random", "seed": seed},
        "budget": {"trials": trials},
        "maxConcurrent": at_once,
        "maxUnplaced": at_once,
        "retention": {"bestCheckpoints": 3, "failedRuns": 5},
    }
    life = SweepLife(seed, spec)
    life.slow, life.failing, life.deadly, life.crashes = 0.005, 0.001, 0.0003, 0.125
    while len(life.judge.ledger.params) < trials:
        if life.random.random() < RARELY:
            _break(life)
        life.turn()
    life.end()
    return life


def _make_unreliable(life: SweepLife) -> None:
    random = life.random
    life.slow = random.choice([0.0, 0.03, 0.1])
    life.failing = random.choice([0.0, 0.01, 0.05])
    life.deadly = random.choice([0.0, 0.005, 0.02])
    life.crashes = random.choice([0.0, 0.1, 0.3])


def _break(life: SweepLife) -> None:
    """Now and then something breaks, or comes back."""
    random, home = life.random, life.random.choice(life.homes)
    match random.randrange(100):
        case 0 | 1:
            home.kill_operator(random.randrange(len(home.operators)))
        case 2 | 3 if home.clerks.living:
            _kill_clerk(life, home)
        case 4:
            _second_clerk(home)
        case 5 | 6:
            home.cluster.pass_lease()
        case 7 | 8:
            life.storage.away = not life.storage.away
        case 9 | 10:
            home.cluster.room = random.choice([0, 1, GANG, 2 * GANG + 1, 100, 100])
        case _:
            pass


def _use(life: SweepLife) -> None:
    """Now and then the user wants something else."""
    random, cluster = life.random, life.random.choice(life.homes).cluster
    match random.randrange(150):
        case 0 | 1 | 2:
            cluster.edit(edited_spec(random, cluster.sweep.spec))
        case 3:
            again = taken_up_again(random, cluster.sweep.spec)
            if random.random() < 0.5:
                cluster.apply_again(again)
            else:
                cluster.edit(again)
        case 4 | 5 if cluster.runs:
            cluster.delete_by_hand(random.choice(sorted(cluster.runs)))
        case 6 if len(life.homes) == 1 and random.random() < 0.2:
            life.apply()
        case 7 if len(life.homes) == 1 and random.random() < 0.3:
            _put_back_log(life)
        case _:
            pass


def _put_back_log(life: SweepLife) -> None:
    """As it was a while ago; nobody works on it meanwhile. The sweep is applied again: the status
    of the object that was there knows of more records."""
    home, judge = life.home, life.judge
    if not judge.ledger.log or judge.fewest_kept < MOST_TRIALS:
        return  # a trial may be open again of which nothing is left
    for clerk in home.clerks.living:
        clerk.dead = True
    home.clerks.bury()
    for number in range(len(home.operators)):
        home.kill_operator(number)
    life.storage.lose_log(life.random.randint(1, len(judge.ledger.log)))
    home.cluster.apply_again(home.cluster.sweep.spec)


def _kill_clerk(life: SweepLife, home: Quarters) -> None:
    clerk = life.random.choice(home.clerks.living)
    if not clerk.busy:
        clerk.dead = True
        home.clerks.bury()


def _second_clerk(home: Quarters) -> None:
    """A node that cannot be reached: its pod is deleted, and works."""
    for clerk in home.clerks.living:
        clerk.deleted = True
