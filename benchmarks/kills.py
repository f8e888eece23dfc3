"""SIGKILL of rank, agent, driver or two of them at random moments -> counted once, resumed right?

Method: `trainrun run` with two workers. In each run eight kills strike, each up to three seconds
after all ranks have begun, or while the run still recovers from the kill before. Then the run ends
at a step that it is given, and is compared with a run of as many steps that nothing disturbs. With
a warm start each start of a rank is held against a cold one besides, and kills come up to fifteen
seconds after the ranks have begun, so that they have standbys.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.killed_run import Trial
from benchmarks.killed_warm_run import WarmTrial
from benchmarks.local_job import machine

KILLS = 8
"""In one run: as many incidents as a status keeps in full."""


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of training that is killed."""

    kind: type[Trial]
    torch: bool


FORMS: Mapping[str, Form] = {
    "plain": Form(Trial, torch=False),
    "torch": Form(Trial, torch=True),
    "warm": Form(WarmTrial, torch=True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=170, help="of a script without torch")
    parser.add_argument("--torch", type=int, default=30, help="of one with it")
    parser.add_argument("--warm", type=int, default=0, help="of one with it and a warm start")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wanted = {"plain": options.kills, "torch": options.torch, "warm": options.warm}
    told = ", ".join(f"{number} {name}" for name, number in wanted.items() if number)
    print(f"{machine()}; kills: {told}", flush=True)
    begun, made, bad = time.time(), 0, 0
    for name, kills in wanted.items():
        for number, first in enumerate(range(0, kills, KILLS)):
            dice = random.Random(f"{options.seed} {name} {number}")
            with tempfile.TemporaryDirectory(prefix="trainrun-kills-") as folder:
                trial = FORMS[name].kind(Path(folder), FORMS[name].torch, dice)
                wrong = trial.live(min(kills - first, KILLS))
            made, bad = made + len(trial.kills), bad + bool(wrong)
            found = f"{len(trial.kills)} kills{trial.told()}, {wrong or 'all as promised'}"
            print(f"run {name} {number}, seed {options.seed}: {found}", flush=True)
    print(f"{made} kills, {bad} runs that broke a promise, in {time.time() - begun:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
