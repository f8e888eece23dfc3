"""The training processes of one simulated worker in one attempt: how far each is, and how it ended.

Layer: simulation. A process that ends takes none of its siblings along, as in a real worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun.contract.agent_state import ProcessExit
    from trainrun.contract.answer import Start


@dataclass(slots=True, kw_only=True)
class Training:
    """The processes of one worker in one attempt."""

    order: Start
    ranks: tuple[int, ...]
    """Global numbers of the worker's ranks."""
    steps: dict[int, int] = field(init=False)
    """The last step that each rank has done, before the first the one that was handed out."""
    calls: dict[int, int] = field(init=False)
    """How often each rank has called should_save()."""
    exits: dict[int, tuple[ProcessExit, float]] = field(default_factory=dict)
    """How ranks ended, and when."""
    saving: set[int] = field(default_factory=set)
    """Ranks that were asked to save."""
    finished: set[int] = field(default_factory=set)
    """Ranks that have called finish()."""
    hung: set[int] = field(default_factory=set)
    """Ranks that do nothing any more, and do not end."""
    terminated: bool = False
    """They were sent SIGTERM."""
    reports: bool = True
    """The script says what it does."""
    spawned: float | None = None
    first_step: float | None = None
    last_step: float | None = None
    """When its processes were started, and when the first and the newest step were done."""

    slowest: float = 0.0
    """Seconds that a step took at most, the first one not counted."""
    moved: float | None = None
    """When they were started, had waited for their checkpoint, or reported last."""

    found: int | None = None
    """The step that the script has found in a folder of its own."""

    def __post_init__(self) -> None:
        """Nothing is done yet."""
        self.steps = dict.fromkeys(self.ranks, self.begin)
        self.calls = dict.fromkeys(self.ranks, 0)

    def begin_at(self, step: int) -> None:
        """The script has found a save of this step; 0: none."""
        self.found = step
        self.steps = dict.fromkeys(self.ranks, step)

    @property
    def begin(self) -> int:
        """The step that was handed out, or found; 0: none."""
        if self.found is not None:
            return self.found
        return self.order.resume.step if self.order.resume is not None else 0

    @property
    def living(self) -> tuple[int, ...]:
        """Ranks whose process lives, ascending."""
        return tuple(rank for rank in self.ranks if rank not in self.exits)

    @property
    def alive(self) -> bool:
        """Some process lives."""
        return len(self.exits) < len(self.ranks)

    @property
    def failed(self) -> bool:
        """Some process has ended, and not well."""
        return any(not end.well for end, _ in self.exits.values())

    @property
    def ended_well(self) -> bool:
        """All processes have."""
        return not self.alive and not self.failed

    @property
    def step(self) -> int:
        """The step that the fastest rank has done."""
        return max(self.steps.values())

    @property
    def reported(self) -> tuple[int | None, ...]:
        """The last step that each rank has reported in this attempt."""
        begin = self.begin if self.reports else self.step
        return tuple(step if step > begin else None for step in self.steps.values())

    @property
    def passed_by_all(self) -> int:
        """The newest step for which all ranks have brought files, or said that they have none."""
        told = zip(self.ranks, self.reported, strict=True)
        return min((-1 if at is None else at for r, at in told if not self.left(r)), default=-1)

    def left(self, rank: int) -> bool:
        """This rank has ended well."""
        end = self.exits.get(rank)
        return end is not None and end[0].well

    def passed(self, step: int) -> bool:
        """Nothing more comes from this worker's processes for a step."""
        return all(at >= step or self.left(rank) for rank, at in self.steps.items())
