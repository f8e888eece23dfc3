"""When a run of a drill has got far enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.builders import an_agent
from trainrun.contract.agent_state import Committed
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import OutputProgress
from trainrun.contract.staged_parts import StagedStep
from trainrun_operator.cli.drilling.run_monitor import LAST_COMMIT, Watcher

STAGED = (StagedStep(step=30, complete=True),)


@dataclass
class Watched:
    """A run that is to get to step 30, and when that was enough."""

    now: float = 100.0
    ends: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watcher = Watcher(
            until=30,
            attempt=1,
            ready=lambda: True,
            enough=lambda: self.ends.append(self.now),
            clock=lambda: self.now,
        )

    def hears(self, slot: int, step: int, **fields: Any) -> None:
        self.watcher.observe(an_agent(slot, phase="Running", attempt=1, steps=(step,), **fields))


def test_the_checkpoint_of_the_last_step_is_waited_for_since_it_is_compared() -> None:
    """Whether it was committed before the run was stopped was luck."""
    run = Watched()
    run.hears(0, 29)
    run.hears(0, 30, staged=STAGED)
    run.hears(1, 29)  # it has staged nothing yet
    assert run.ends == []
    run.now += 1.0
    run.hears(0, 31)
    assert run.ends == [101.0]


def test_one_that_others_never_complete_is_not_waited_for_without_end() -> None:
    run = Watched()
    run.hears(0, 30, staged=STAGED)
    run.now += LAST_COMMIT + 0.1
    run.hears(0, 90, staged=STAGED)
    assert run.ends == [run.now]


def test_a_commit_of_an_unchanged_script_counts_as_the_step_that_its_output_showed() -> None:
    watcher = Watcher(
        until=None, attempt=1, ready=lambda: True, enough=lambda: None, reads_output=True
    )
    for shown, committed in ((100, None), (120, 1), (140, 1), (160, 2)):
        output = OutputProgress(rank=0, form="nanoGPT", line="", step=shown)
        newest = Committed(id=CheckpointId(attempt=1, step=committed)) if committed else None
        watcher.observe(
            an_agent(0, phase="Running", attempt=1, steps=(None,), output=output, committed=newest)
        )
    assert watcher.committed == {120, 160}
    assert watcher.reported_steps == {100, 120, 140, 160}
    assert watcher.reported[1] == {0: 160}
