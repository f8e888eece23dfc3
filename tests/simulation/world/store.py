"""An object store in memory that keeps the rules of docs/checkpoints.md.

Layer: simulation. It is also the judge: it remembers what was committed when, so that tests can
tell whether a resume point was the right one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trainrun.contract.agent_state import Resolution
from trainrun.contract.answer import ResolveRequest, SaveOrder
from trainrun.contract.checkpoint_id import CheckpointId

KEPT = 2
"""Newest complete checkpoints that stay."""

RUN_ID = "simulated"
"""Of the one run that uses the store."""


@dataclass(slots=True)
class SimCheckpoint:
    """Parts of one checkpoint."""

    parts: set[int] = field(default_factory=set)
    workers: int = 1
    manifest: bool = False
    damaged: bool = False


@dataclass(slots=True)
class SimStore:
    """Checkpoints, attempt claims and the finished mark of one run."""

    available: bool = True
    refuses: bool = False
    """It does not take our credentials."""
    checkpoints: dict[CheckpointId, SimCheckpoint] = field(default_factory=dict)
    claims: dict[int, CheckpointId | None] = field(default_factory=dict)
    trials: dict[int, CheckpointId] = field(default_factory=dict)
    """The newest checkpoint that an attempt was to do without."""
    described: dict[CheckpointId, set[int]] = field(default_factory=dict)
    """Slots that hold a part on their disks, and have said so."""
    staged_claims: set[int] = field(default_factory=set)
    """Attempts that started from the disks."""
    unloadable: set[CheckpointId] = field(default_factory=set)
    """Whole, and yet processes die of them."""
    finished: bool = False
    used_by: str = ""
    """Another TrainRun that owns the storage."""
    bad: set[CheckpointId] = field(default_factory=set)
    lists_late: bool = False
    """Listings show nothing of checkpoints that are committed now."""
    unlisted: set[CheckpointId] = field(default_factory=set)
    """Those that listings do not show yet; who knows their names can read them."""
    lists_parts_late: bool = False
    """Listings do not show the done markers that are written now."""
    unlisted_parts: set[tuple[CheckpointId, int]] = field(default_factory=set)
    """Markers that most listings do not show yet, by slot."""
    stored_votes: dict[int, dict[int, dict[int, tuple[bool, SaveOrder | None]]]] = field(
        default_factory=dict
    )
    """Whether a worker agrees to save, and what asked it, by attempt, call and slot."""
    generation: int = 1
    """That which all of this is in."""
    others: bool = False
    """An earlier TrainRun has made all of this, and the run has claimed nothing yet."""
    inherited: int = 0
    """Attempts up to this one were an earlier TrainRun's."""
    left: list[SimStore] = field(default_factory=list)
    """Earlier generations, as the run has found them."""
    story: dict[int, str] = field(default_factory=dict)
    """Chapters of the run's story, each written once."""
    rewritten: bool = False
    """Somebody has told another chapter of a number than was told before."""

    def put_part(self, checkpoint: CheckpointId, *, slot: int, workers: int) -> None:
        """A worker's files and its done marker."""
        entry = self.checkpoints.setdefault(checkpoint, SimCheckpoint(workers=workers))
        if self.lists_parts_late and slot not in entry.parts:
            self.unlisted_parts.add((checkpoint, slot))
        entry.parts.add(slot)

    def describe(self, checkpoint: CheckpointId, *, slot: int) -> None:
        """A worker's part is on its disk."""
        self.described.setdefault(checkpoint, set()).add(slot)

    def _staged(self, request: ResolveRequest, stored: CheckpointId | None) -> CheckpointId | None:
        """What every worker holds, if it is newer than what is stored."""
        point = request.staged
        if point is None or (stored is not None and stored >= point):
            return None
        entry = self.checkpoints.setdefault(point, SimCheckpoint(workers=request.workers))
        there = self.described.get(point, set()) | entry.parts
        whole = there == set(range(request.workers))
        return point if whole and point not in self.bad and not self.fenced(point) else None

    def commit(self, checkpoint: CheckpointId, *, all_listed: bool = False) -> bool:
        """Write the manifest if the listing shows every part; `all_listed`: it is up to date."""
        entry = self.checkpoints.get(checkpoint)
        if entry is None or not (all_listed or self._shows_parts(checkpoint, entry)):
            return False
        if len(entry.parts) < entry.workers:
            return False
        if self.lists_late and not entry.manifest:
            self.unlisted.add(checkpoint)
        entry.manifest = True
        self._collect()
        return True

    def uncommitted(self, checkpoint: CheckpointId) -> bool:
        """Every part is there, and nobody has seen that yet."""
        entry = self.checkpoints.get(checkpoint)
        return entry is not None and not entry.manifest and len(entry.parts) == entry.workers

    def list_all(self) -> None:
        """The listings have caught up."""
        self.lists_late = self.lists_parts_late = False
        self.unlisted.clear()
        self.unlisted_parts.clear()

    def _shows_parts(self, checkpoint: CheckpointId, entry: SimCheckpoint) -> bool:
        shown = {slot for slot in entry.parts if (checkpoint, slot) not in self.unlisted_parts}
        return len(shown) == entry.workers

    def _collect(self) -> None:
        """Retention: the two newest complete ones stay, and what the last two attempts resumed."""
        whole = sorted(c for c, e in self.checkpoints.items() if e.manifest and c not in self.bad)
        handed = [self.claims[attempt] for attempt in sorted(self.claims)[-2:]]
        for checkpoint in whole[:-KEPT]:
            if checkpoint not in handed:
                del self.checkpoints[checkpoint]

    def fenced(self, checkpoint: CheckpointId) -> bool:
        """A later attempt started from something older."""
        return any(
            attempt > checkpoint.attempt and (point is None or point < checkpoint)
            for attempt, point in self.left_behind().items()
        )

    def left_behind(self) -> dict[int, CheckpointId | None]:
        """Than which each attempt leaves everything newer: a trial only once it has committed."""
        committed = {c.attempt for c, entry in self.checkpoints.items() if entry.manifest}
        stored = {n: claim for n, claim in self.claims.items() if n not in self.staged_claims}
        committed |= {resume.attempt for resume in stored.values() if resume is not None}
        return self.claims | {n: it for n, it in self.trials.items() if n not in committed}

    def newest(self) -> CheckpointId | None:
        """The greatest complete one that is neither fenced nor set aside."""
        return max(
            (c for c, e in self.checkpoints.items() if self._usable(c, e)),
            default=None,
        )

    def _usable(self, checkpoint: CheckpointId, entry: SimCheckpoint) -> bool:
        complete = entry.manifest or self._shows_parts(checkpoint, entry)
        listed = complete and checkpoint not in self.unlisted
        return listed and checkpoint not in self.bad and not self.fenced(checkpoint)

    def _not_shown(
        self, resume: CheckpointId | None, committed: CheckpointId | None
    ) -> CheckpointId | None:
        """A commit that somebody knows by its name, and that only the listing lacks.

        What attempts started from is asked for where there is nothing else.
        """
        handed = self.claims.values() if resume is None else ()
        known = {committed, *handed} & (self.unlisted - self.bad)
        newer = {c for c in known if c is not None and (resume is None or c > resume)}
        return max((c for c in newer if not self.fenced(c)), default=None)

    def _has_committed(self, committed: CheckpointId | None) -> bool:
        """It is known that something was committed which no later attempt has left behind."""
        shown = {c for c, e in self.checkpoints.items() if e.manifest} - self.unlisted
        known = {*shown, *self.bad, committed} - {None}
        claims = ((n, claim) for n, claim in self.claims.items() if n not in self.staged_claims)
        handed = any(claim is not None for _, claim in claims)
        return handed or any(not self.fenced(c) for c in known if c is not None)

    def record(self, number: int, text: str) -> None:
        """A chapter of the story; one that stands there stays."""
        known = self.story.setdefault(number, text)
        self.rewritten |= known != text

    def _enter(self, request: ResolveRequest, generation: int) -> None:
        """The first claim of a run begins a generation, or takes over what there is."""
        assert generation in (0, self.generation), "an agent is told of a generation that is not"
        if self.others and request.on_existing == "StartFresh":
            self.left.append(replace(self))
            self.checkpoints, self.claims, self.stored_votes = {}, {}, {}
            self.bad, self.unlisted, self.unlisted_parts = set(), set(), set()
            self.finished = False
            self.generation += 1
        elif self.others:
            self.inherited = max(self.claims, default=0)
        self.others = False

    def resolve(
        self, request: ResolveRequest, *, generation: int = 0, wrong_keys: bool = False
    ) -> Resolution:
        """Claim the resume point of an attempt, or read it; the same answer when asked again."""
        attempt, committed = request.attempt, request.committed
        if not self.available:
            return Resolution(attempt=attempt, outcome="Unavailable", message="the store is away")
        if self.refuses or wrong_keys:
            message = "the store does not take these credentials"
            return Resolution(attempt=attempt, outcome="Misconfigured", message=message)
        if request.proof:
            return Resolution(attempt=attempt, outcome="Resolved", resume=committed)
        if self.used_by:
            message = f"the storage belongs to TrainRun {self.used_by}, which is alive"
            return Resolution(attempt=attempt, outcome="InUse", message=message)
        if self.others and request.on_existing == "Fail":
            return Resolution(attempt=attempt, outcome="NotEmpty", message="it is not empty")
        self._enter(request, generation)
        highest = max(self.claims, default=0)
        if self.finished:
            return Resolution(attempt=attempt, outcome="Finished")
        if attempt in self.claims and attempt > self.inherited:
            resume = self.claims[attempt]
        elif attempt <= highest:
            return Resolution(attempt=attempt, outcome="Behind", highest_attempt=highest)
        else:
            stored = self.newest()
            staged = self._staged(request, stored)
            resume = staged or stored
            if (hidden := self._not_shown(resume, committed)) is not None:
                message = f"{hidden.name} exists but the listing does not show it"
                return Resolution(attempt=attempt, outcome="Unavailable", message=message)
            if resume is None and self._has_committed(committed):
                return Resolution(attempt=attempt, outcome="NoGoodCheckpoint", message="none left")
            if staged is not None:
                self.staged_claims.add(attempt)
            elif resume is not None:
                self.checkpoints[resume].manifest = True
            if resume is not None and resume == request.trial_of:
                older = (c for c, e in self.checkpoints.items() if c < resume and e.manifest)
                before = max(
                    (c for c in older if self._usable(c, self.checkpoints[c])), default=None
                )
                if before is not None:
                    self.trials[attempt], resume = resume, before
            self.claims[attempt] = resume
        return Resolution(
            attempt=attempt,
            outcome="Resolved",
            resume=resume,
            trial_of=self.trials.get(attempt),
            staged=attempt in self.staged_claims,
            highest_attempt=max(self.claims),
            generation=self.generation,
            run_id=RUN_ID,
        )
