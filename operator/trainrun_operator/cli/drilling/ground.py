"""Where a drill's runs take place.

Layer: cli. This machine and a cluster are one each: how runs are made and disturbed, and what can
be seen of them. What is concluded from that is the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.course import Course
    from trainrun_operator.cli.drilling.scenarios import FaultName, Scenario


class Ground(Protocol):
    """One of them."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of a drill that was held here should know first."""

    def names(self, *, everything: bool) -> tuple[FaultName, ...]:
        """The faults to rehearse here; with `everything` all that there are."""

    def possible(self, scenario: Scenario, control: Course, *, until: int) -> Scenario:
        """It as it can be made here, after this undisturbed run; without faults, and with why,
        where it cannot."""

    def try_run(
        self,
        *,
        scenario: Scenario | None,
        until: int | None,
        seconds: float,
        share: float = math.inf,
    ) -> Course:
        """Run from fresh storage until a step, at most so long, and leave nothing behind; without a
        step until it has gone far enough, for which less is enough after its `share` of seconds.

        Raises InvalidSpec, StoreError, KeyboardInterrupt, and what a cluster answers.
        """


def offline(runs: str) -> dict[str, str]:
    """Environment in which trackers send nothing; `runs`: URI of the folder for those of MLflow."""
    return {
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": runs,
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }


def survives(faults: int) -> dict[str, object]:
    """The failurePolicy of a drill's run: what was asked for is to be survived, and one incident
    more is a finding."""
    return {"maxFailures": max(faults, 1), "backoff": {"initial": "0s"}}
