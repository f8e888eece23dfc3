"""Listens to the agents of a run: what its metrics do not tell, and when it has got far enough.

Layer: cli; pure, but for the clock that it is given.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from trainrun_operator.cli.drilling.course import Noticed

if TYPE_CHECKING:
    from trainrun.contract.agent_state import AgentState


@dataclass(slots=True, kw_only=True)
class Watcher:
    """Hears every heartbeat of one run."""

    until: int | None
    """The step that it is to get to; None: until `far_enough`."""
    share: float = math.inf
    """Seconds after which two checkpoints are enough."""
    attempt: int
    """The attempt that is to get there, or a later one."""
    ready: Callable[[], bool]
    """Whether the faults have struck."""
    enough: Callable[[], None]
    """Called once, when it has got there."""
    began: Callable[[], bool] = lambda: False
    """Whether a fault has struck."""
    on_strike: Callable[[], None] = lambda: None
    """Called once, when one has."""
    clock: Callable[[], float] = time.monotonic
    reached_it: bool = False
    struck_at: float | None = None
    reported: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """By attempt and rank the highest step."""
    committed: set[int] = field(default_factory=set)
    """Steps of the first attempt's checkpoints."""
    told: set[int] = field(default_factory=set)
    """Steps that were heard of in the first attempt, as far as they were seen."""
    sought: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    opened: set[int] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)
    ask_gap: float = 0.0
    longest_step: float = 0.0
    _begun: float | None = None
    _there: float | None = None
    """When it was seen at its last step."""
    _agreed: float | None = None
    _calls: dict[int, int] = field(default_factory=dict)
    """By slot: a rank that waits for no other goes on asking while that one saves."""
    _saved: float | None = None
    _asked_for: set[int] = field(default_factory=set)
    """Steps of what was saved because should_save() said so."""
    _commits: dict[int, float] = field(default_factory=dict)

    def hear(self, state: AgentState) -> None:
        """Take note of what an agent says."""
        if self.struck_at is None and self.began():
            self.struck_at = self.clock()
            self.on_strike()
        if not state.attempt:
            return
        first = state.slot * len(state.steps)
        for rank, step in enumerate(state.steps, start=first):
            if step is not None:
                told = self.reported[state.attempt]
                told[rank] = max(step, told.get(rank, step))
        for said, attempts in (
            (state.asked_for_checkpoint, self.sought),
            (state.save.calls, self.asked),
            (state.rendezvous, self.opened),
        ):
            if said:
                attempts.add(state.attempt)
        if state.attempt == 1:
            self._of_the_first(state)
        if not self.reached_it and state.phase == "Running" and self._has_got_there(state):
            self.reached_it = True
            self.enough()

    def noticed(self, step: int) -> Noticed:
        """How a notice at this step went on."""
        # One that came of itself meanwhile does not show how long a save on a notice takes.
        commits = [
            moment
            for at, moment in self._commits.items()
            if (at in self._asked_for if self._asked_for else at >= step)
        ]
        return Noticed(
            agreed=self._after(self._agreed),
            reported=self._after(self._saved),
            committed=self._after(min(commits, default=None)),
            calls=max(min(self._calls.values(), default=0), 0),
        )

    @property
    def commit_gap(self) -> float:
        """Seconds between two commits of the first attempt, at most; 0: there were not two."""
        moments = sorted(self._commits.values())
        return max((b - a for a, b in pairwise(moments)), default=0.0)

    def _of_the_first(self, state: AgentState) -> None:
        self._begun = self._begun or self.clock()
        self.told |= {step for step in state.steps if step is not None}
        self.parts |= {s.step for s in state.staged if s.ranks and not s.whole}
        self.ask_gap = max(self.ask_gap, state.ask_gap)
        if self.struck_at is None:
            self.longest_step = max(self.longest_step, state.owes or 0.0)
        if state.committed is not None:
            self.committed.add(state.committed.id.step)
            self._commits.setdefault(state.committed.id.step, self.clock())
        if state.save.committed is not None:
            self._agreed = self._agreed or self.clock()
            self._calls[state.slot] = state.save.calls - state.save.committed
        asked_for = {it.step for it in state.staged if it.after_save and it.ranks}
        if asked_for and self._saved is None:
            self._saved = self.clock()
        self._asked_for |= asked_for

    def _after(self, moment: float | None) -> float | None:
        """Seconds from the strike."""
        if moment is None or self.struck_at is None:
            return None
        return max(moment - self.struck_at, 0.0)

    def _has_got_there(self, state: AgentState) -> bool:
        if state.attempt < self.attempt or not self.ready():
            return False
        if self.until is None:
            late = self._begun is not None and self.clock() - self._begun > self.share
            return far_enough(self.committed, self.told, late=late)
        told = self.reported[state.attempt]
        ranks = range(state.slot * len(state.steps), (state.slot + 1) * len(state.steps))
        if not told or min(told) not in ranks or told[min(told)] < self.until:
            return False
        # What it saves there is compared, so it is stopped when that is committed.
        self._there = self.clock() if self._there is None else self._there
        is_stored = not any(it.step <= self.until for it in state.staged)
        return is_stored or self.clock() - self._there > LAST_COMMIT


def far_enough(saved: Set[int], told: Set[int], *, late: bool) -> bool:
    """Whether an undisturbed run with these checkpoints and steps leaves room for every fault.

    `late`: it has used its share of the time.
    """
    if len(saved) < 2:
        return False
    between = any(min(saved) < step < max(saved) for step in told - saved)
    beyond = max(told, default=0) > sorted(saved)[1] + 1
    return len(saved) >= (THIRD if between else FIFTH) or (late and beyond)


LAST_COMMIT = 5.0
"""Seconds for which the checkpoint of the last step is waited for."""
THIRD = 3
"""Two checkpoints to resume from, and as many steps again to compare after that."""
FIFTH = 5
"""Likewise of a script that reports only where it saves: a fault strikes with the third one."""
