"""What is to be done about a run of a drill in a cluster, by what its status and its storage show.

Layer: cli; pure. The status lags some seconds behind the training, and what is committed a second
or so: what is due at a step comes a little after it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from trainrun_operator.cli.drilling.watching import far_enough

if TYPE_CHECKING:
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.worlds.local.faults import Fault

Due = Literal["Nothing", "Strike", "Stop"]


@dataclass(slots=True, kw_only=True)
class Sight:
    """Looks at one run again and again."""

    until: int | None
    """The step that it is to get to; None: until `far_enough`."""
    share: float = math.inf
    """Seconds after which two checkpoints are enough."""
    fault: Fault | None
    clock: Callable[[], float] = time.monotonic
    struck: bool = False
    reached_it: bool = False
    committed: set[int] = field(default_factory=set)
    """Steps of the first attempt's checkpoints."""
    told: set[int] = field(default_factory=set)
    """Steps that it was seen at."""
    _begun: float | None = None

    def due(self, status: TrainRunStatus, saved: Iterable[CheckpointId] = ()) -> Due:
        """What is to be done now, with these checkpoints in its storage; `Stop` once."""
        last = [it.step for it in saved if it.attempt == status.attempt]
        if status.attempt == 1:
            self.committed.update(last)
            self.told.update(_reported(status))
        reported = max([*last, *_reported(status)], default=None)
        if self.fault is not None and not self.struck:
            # What is committed was saved a while ago: the training is beyond it.
            begun = max([*(step + 1 for step in last), *_reported(status)], default=None)
            runs = status.attempt == 1 and status.phase == "Running"
            return (
                "Strike" if runs and begun is not None and begun >= self.fault.step else "Nothing"
            )
        if self.reached_it or not self._has_got_there(status, reported):
            return "Nothing"
        self.reached_it = True
        return "Stop"

    def _has_got_there(self, status: TrainRunStatus, step: int | None) -> bool:
        if status.attempt < (1 if self.fault is None else 2):
            return False
        if self.until is None:
            self._begun = self._begun or self.clock()
            late = self.clock() - self._begun > self.share
            return far_enough(self.committed, self.told | self.committed, late=late)
        return step is not None and step >= self.until


def _reported(status: TrainRunStatus) -> tuple[int, ...]:
    """The step that the running attempt has reported, as far as is told; none: nothing yet."""
    chapter, step = status.chapter, status.progress.step
    if step is None or chapter is None or chapter.first_step is None:
        return ()
    return (step,) if chapter.attempt == status.attempt and status.phase == "Running" else ()
