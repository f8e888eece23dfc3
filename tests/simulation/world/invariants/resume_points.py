"""Resume points: complete, not fenced, not older than the newest commit, and told as claimed.

Layer: simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.world.invariants.flushed import thrown_away
from trainrun_operator.core.run.incidents.repeats import fingerprint

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.invariants.case import Case
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.api.run.status import TrainRunStatus


class ResumePoints:
    """Judges what the store hands out, by what was committed."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._deleted = False
        self._commits: dict[CheckpointId, float] = {}
        self._sole_words: dict[str, CheckpointId] = {}
        """What was set aside on the word of one node, by its agent."""
        self.claims: dict[int, tuple[float, CheckpointId | None]] = {}

    def status(self, new: TrainRunStatus) -> None:
        """A start record hands out what was claimed for it."""
        record = new.start_record
        if record is None:
            return
        claim, told = self.claims.get(record.attempt), record.resume_point
        if claim is None or claim[1] != told:
            self._case.wrong(
                f"start record {record.attempt} hands out {told}, the store has {claim}"
            )

    def run_deleted(self) -> None:
        """The run's object is gone; agents may still do for a while what they were told."""
        self._deleted = True

    def closing(self) -> None:
        """A run that has succeeded is marked finished in its storage, or it would train again."""
        world = self._case.world
        unmarked = world.status.is_true("Complete") and not world.store.finished
        who_marks_it_died = any(strike.slot == 0 for strike in self._case.strikes)
        if self._deleted and unmarked and not who_marks_it_died:
            self._case.wrong("the run was deleted before its storage was marked finished")

    def committed(self, checkpoint: CheckpointId) -> None:
        """A manifest was written."""
        self._commits.setdefault(checkpoint, self._case.now)

    def set_aside(self, agent: SimAgent, checkpoint: CheckpointId) -> None:
        """An agent gives a checkpoint up for ever."""
        case = self._case
        if case.world.config.replicas > 1:
            if not case.world.store.checkpoints[checkpoint].damaged:
                case.wrong(f"{agent.name} sets {checkpoint} aside, which is good")
        elif self._sole_words.setdefault(agent.id, checkpoint) != checkpoint:
            case.wrong(f"{checkpoint} falls on the word of {agent.name}, which had one already")

    def resolved(self, attempt: int, resume: CheckpointId | None) -> None:
        """The store handed out a resume point."""
        now, case = self._case.now, self._case
        known = self.claims.setdefault(attempt, (now, resume))
        if known[1] != resume:
            case.wrong(f"attempt {attempt} resolved to {known[1]} and to {resume}")
        if known[0] != now:
            return
        self._nothing_thrown_away(attempt, resume)
        store = case.world.store
        entry = store.checkpoints.get(resume) if resume is not None else None
        if resume is not None and (
            entry is None
            or resume in store.bad
            or len(entry.parts | self._described(attempt, resume)) < entry.workers
        ):
            case.wrong(f"attempt {attempt} resumes from {resume}, which is incomplete or damaged")
        if resume is not None and self._was_left_behind(resume, attempt):
            case.wrong(f"attempt {attempt} resumes from {resume}, which is fenced")
        newest = self._newest_effective(attempt)
        tried = newest is not None and store.trials.get(attempt) == newest
        if tried and not self._may_be_tried(newest):
            case.wrong(f"attempt {attempt} tries {resume} in vain: {newest} was not died of twice")
        if newest is not None and (resume is None or resume < newest) and not tried:
            case.wrong(f"attempt {attempt} resumes from {resume} although {newest} was committed")

    def _described(self, attempt: int, point: CheckpointId) -> set[int]:
        """Slots that have said that they hold their part, where that is enough: nobody may know yet
        that one of them is lost. Who starts from it is judged with its order."""
        store = self._case.world.store
        return store.described.get(point, set()) if attempt in store.staged_claims else set()

    def _on_disks(self, point: CheckpointId) -> set[int]:
        """Slots whose workers live and hold their part of it."""
        gang = self._case.world.gang(point.attempt)
        return {a.slot for a in gang if a.alive and point in a.carrying.holds(a)}

    def _may_be_tried(self, newest: CheckpointId | None) -> bool:
        """Attempts that started from it have died of one root without a step, and not yet one that
        tried to do without it."""
        told = self._case.world.status.all_incidents
        roots = [fingerprint(it) for it in told if it.opened == newest and it.step is None]
        before = [fingerprint(it) for it in told if it.trial_of == newest and it.opened is not None]
        started = [n for n, (_, point) in self.claims.items() if point == newest]
        twice = len(started) > 1 and len(roots) > 1 and roots[-1] == roots[-2] is not None
        return twice and roots[-1] not in before

    def _nothing_thrown_away(self, attempt: int, resume: CheckpointId | None) -> None:
        """The flush that was ordered has ended."""
        case = self._case
        ending = case.world.status.ending
        before = max((number for number in case.records if number < attempt), default=0)
        gang = case.world.gang(before)
        if ending is None or case.heartbeats_lost or case.clocks_differ or not gang:
            return
        if ending.attempt != before:  # the status was set back: no flush was ordered
            return
        point = self.claims[before][1] if before in self.claims else None
        if before in case.world.store.staged_claims and point is not None:
            holders = [a for a in gang if a.slot in self._on_disks(point) and not a.unheard]
            whole = len(holders) == len(case.records[before].roster)
            if whole and (resume is None or resume < point) and point not in case.world.store.bad:
                case.wrong(f"attempt {attempt} resumes from {resume} while all hold {point}")
        step = thrown_away(case.world, ending=ending, gang=gang, resume=resume)
        if step is not None and len(gang) == len(case.records[before].roster):
            case.wrong(f"attempt {attempt} resumes from {resume} while step {step} is being stored")

    def _newest_effective(self, attempt: int) -> CheckpointId | None:
        """Committed before any later attempt claimed something older, and not damaged.

        What no listing shows yet counts where the run knows of it.
        """
        world, told = self._case.world, self._case.world.status.checkpoint
        known = (told.attempt, told.step) if told is not None else None
        unseen = {c for c in world.store.unlisted if (c.attempt, c.step) != known}
        return max(
            (
                c
                for c, at in self._commits.items()
                if c not in world.store.bad | unseen
                and not any(
                    c.attempt < later < attempt and claimed <= at and point != c
                    for later, (claimed, point) in self.claims.items()
                )
                and not self._was_left_behind(c, attempt)
            ),
            default=None,
        )

    def _was_left_behind(self, checkpoint: CheckpointId, attempt: int) -> bool:
        """An attempt between it and this one has started from something older."""
        return any(
            checkpoint.attempt < later < attempt and (point is None or point < checkpoint)
            for later, point in self._case.world.store.left_behind().items()
        )
