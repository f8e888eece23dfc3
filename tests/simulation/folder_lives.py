"""Lives of scripts that nobody changed, drawn by their numbers: their folder is the checkpoint."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

from tests.simulation.drawn import drawn_life
from tests.simulation.holding import mistake_in
from tests.simulation.lives import Life
from tests.simulation.striking import FaultKind
from tests.simulation.world.folder_simulation import FolderSimulation
from tests.simulation.world.own_saves import SimScript

KINDS: tuple[FaultKind, ...] = (
    "kill",
    "kill",
    "oom",
    "exception",
    "node-loss",
    "preempt",
    "vanish",
    "evict",
    "suspend",
    "template",
    "stand-still",
    "store-away",
    "damage",
    "operator-crash",
    "hand-over",
    "silence",
)


def a_life(number: int) -> tuple[Life, functools.partial[FolderSimulation]]:
    """The life of this number, and what makes its world."""
    chance = random.Random(f"folder {number}")
    life = replace(
        drawn_life(number, KINDS),
        replicas=1,
        asks=False,
        says_finished=False,
        before="Nothing",
        on_existing="Resume",
        no_progress_limit=0,
        rules=(),
        hang_policy="Observe",  # no limit is learned where nothing is reported
        progress_timeout=None,
        first_step_timeout=None,
        loss=chance.choice([0.0, 0.0, 0.1]),
    )
    script = SimScript(
        form=chance.choice(["Folders", "Place", "Rename"]),
        complete=chance.random() < 0.5,
        shows_end=chance.random() < 0.5,
        slow=chance.choice([0.1, 1.5, 2.9]),
        void=chance.choice([0.0, 0.1, 0.5]),
        jumps=chance.choice([0.0, 0.0, 0.2]),
        ignores_from=chance.choice([0, 0, 0, 2]),
    )
    every = chance.choice([3, 9])
    return life, functools.partial(FolderSimulation, script=script, save_every=every)


def mistake_in_folder(number: int) -> str:
    """What was wrong in the life of this number; "" if nothing was."""
    life, make = a_life(number)
    return mistake_in(life, make, ["ResumeIgnored"])
