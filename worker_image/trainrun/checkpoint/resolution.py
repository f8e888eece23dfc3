"""Chooses and claims the resume point of an attempt.

Layer: rules over `RunStore`, used by slot 0's agent. Invariants: two attempts never get the same
number; an attempt's choice is claimed write-once before it is reported; once a checkpoint was
committed, no attempt starts from scratch; a store error is an outcome, not an exception.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.choice import (
    Choice,
    KnownCommits,
    StoreView,
    choose,
    evidence,
    inspect,
    look,
    one_before,
)
from trainrun.checkpoint.description import merge_descriptions
from trainrun.checkpoint.ownership import (
    BeatWatch,
    NotOwned,
    Owned,
    acquire,
    enter,
    life_of_owner,
    of_other_params,
)
from trainrun.checkpoint.reader import read_manifest
from trainrun.checkpoint.records import AttemptRecord, FinishedRecord
from trainrun.checkpoint.selection import fenced_by
from trainrun.contract import layout
from trainrun.contract.agent_state import Outcome, Resolution
from trainrun.contract.answer import ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import (
    CheckpointConflict,
    CheckpointDamaged,
    ObjectNotFound,
    StoreError,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from trainrun.checkpoint.run_store import RunStore


def resolve(
    run: RunStore,
    request: ResolveRequest,
    *,
    uid: str,
    generation: int = 0,
    watch: BeatWatch,
    params: str = "",
) -> Resolution:
    """Claim the requested resume point (attempts count from 1) for the TrainRun `uid`.

    `generation` is the run's generation; 0: not known, then the request determines it and the
    answer reports it. `params` are the parameters of a sweep's trial, as JSON: a folder with other
    parameters is refused. A request without a known commit may use a new store; otherwise an empty
    listing is refused. Repeating it for a claimed attempt gives the same answer while that choice
    is still good (else `Behind`: take the next number). With `look` nothing is claimed or written
    (see `OwnerLife`). Never raises for store errors.
    """
    place = replace(run, generation=generation) if generation else run
    claimant = _Claimant(run=place, request=request, uid=uid, params=params)
    try:
        if request.look:
            seen = life_of_owner(place, watch=watch)
            message = f"the owner's beat in {place.uri}: {seen}"
            return replace(claimant.answer("Looked", message=message), owner=seen)
        if request.committed is None:
            # This may be the first use of the store: prepare it, and check that it is suitable.
            run.store.probe()
        if not generation:
            place = enter(run, uid=uid, fresh=request.on_existing == "StartFresh")
            claimant = replace(claimant, run=place)
        return claimant.resolve(watch=watch)
    except StoreError as error:
        return claimant.answer(_outcome(error), message=str(error))


def prove(run: RunStore, request: ResolveRequest) -> Resolution:
    """Read the manifest of the commit, or list attempts if there is none: `Resolved` where the
    store permits it, whatever it contains. Claims and writes nothing; never raises for store
    errors."""
    attempt, point = request.attempt, request.committed
    try:
        if point is None:
            run.attempts()
        else:
            with contextlib.suppress(CheckpointDamaged):  # the choice or a download reports it
                read_manifest(run, point)
    except StoreError as error:
        return refused(request, error)
    return Resolution(attempt=attempt, outcome="Resolved", resume=point)


def refused(request: ResolveRequest, error: StoreError) -> Resolution:
    """The answer where the store fails before anything is known of the run."""
    return Resolution(attempt=request.attempt, outcome=_outcome(error), message=str(error))


def _outcome(error: StoreError) -> Outcome:
    return "Unavailable" if isinstance(error, StoreUnavailable) else "Misconfigured"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claimant:
    run: RunStore
    request: ResolveRequest
    uid: str
    params: str

    def resolve(self, *, watch: BeatWatch) -> Resolution:
        fail_on_existing = self.request.on_existing == "Fail"
        if refusal := of_other_params(self.run, self.params):
            return self.answer(refusal.outcome, message=refusal.message)
        if not fail_on_existing and self._has_finished():
            return self._finished()
        owner = acquire(
            self.run,
            uid=self.uid,
            fail_on_existing=fail_on_existing,
            watch=watch,
            params=self.params,
        )
        if isinstance(owner, NotOwned):
            return self.answer(owner.outcome, message=owner.message)
        if self._has_finished():
            return self._finished()
        view = look(self.run)
        if view.highest >= self.request.attempt:
            return self._claimed_before(view, owner)
        return self._claim(view, owner)

    def answer(
        self,
        outcome: Outcome,
        *,
        message: str,
        highest: int = 0,
        resume: CheckpointId | None = None,
        choice: Choice | None = None,
    ) -> Resolution:
        return Resolution(
            attempt=self.request.attempt,
            outcome=outcome,
            resume=resume,
            highest_attempt=highest,
            set_aside=tuple(choice.set_aside) if choice else (),
            suspect=choice.suspect if choice else None,
            message=message,
            generation=self.run.generation,
        )

    def _has_finished(self) -> bool:
        """Whether the record of success exists; accepted only where two responses agree.

        The consequence is permanent, and a proxy may answer for the store.
        """
        problem = ""
        try:
            self.run.read(FinishedRecord, layout.FINISHED)
        except ObjectNotFound:
            return False
        except CheckpointDamaged as error:
            problem = str(error)
        if not problem and all(item.key != layout.FINISHED for item in self.run.objects("")):
            problem = "it is readable, but the listing does not show it"
        if problem:
            raise StoreUnavailable(
                f"{self.run.uri}/{layout.FINISHED} cannot be trusted: {problem}. Check whether a "
                "proxy answers for the store; if the object itself is damaged, delete it to "
                "continue the run, or use another runName"
            )
        return True

    def _finished(self) -> Resolution:
        return self.answer(
            "Finished",
            message=f"{self.run.uri} has already finished: nothing is left to do. To train again, "
            "set storage.onExisting: StartFresh, or use another storage.runName",
        )

    def _claim(self, view: StoreView, owner: Owned) -> Resolution:
        if self.request.attempt > 1 and self.request.attempt - 1 not in view.attempts:
            self._check_listing()
        known = {
            checkpoint: how
            for checkpoint, how in (
                (owner.committed, "its owner had committed it"),
                (self.request.committed, "it was reported as committed"),
            )
            if checkpoint is not None
        }
        choice = choose(self.run, view, known)
        if choice.suspect is not None:
            return self.answer("Suspect", message=choice.suspect.message, choice=choice)
        resume = choice.resume.id if choice.resume else None
        staged = self._staged(view, choice)
        resume = staged or resume
        if resume is None and (problem := self._lost(view, choice, known)):
            return self.answer(
                "NoGoodCheckpoint", message=problem, highest=view.highest, choice=choice
            )
        tried = resume if resume == self.request.trial_of else None
        before = one_before(self.run, view, tried) if tried is not None else None
        record = AttemptRecord(
            attempt=self.request.attempt,
            uid=self.uid,
            resume=before or resume,
            ended=self.request.ended,
            set_aside=tuple(choice.set_aside),
            trial_of=tried if before else None,
            staged=staged is not None and before is None,
        )
        if not self.run.write_once(layout.attempt_key(self.request.attempt), record):
            view = look(self.run)
            if view.highest < self.request.attempt:
                raise self.run.incomplete_listing(layout.attempt_key(self.request.attempt))
            return self._claimed_before(view, owner)
        if self._claim_late_commit(resume, view, known):
            return self._behind(self.request.attempt + 1)
        return self._resolved(record, owner, highest=self.request.attempt, choice=choice)

    def _staged(self, view: StoreView, choice: Choice) -> CheckpointId | None:
        """The checkpoint on the workers' disks, if it is the newest."""
        staged, stored = self.request.staged, choice.resume
        if staged is None or (stored is not None and stored.id >= staged):
            return None
        if fenced_by(staged, view.resumes) is not None or view.sets_aside(self.run, staged):
            return None
        try:
            merged = merge_descriptions(self.run, staged, workers=self.request.workers)
        except (CheckpointConflict, CheckpointDamaged) as error:
            choice.skipped.append(f"{staged.name}: {error}")
            return None
        return staged if merged is not None else None

    def _claim_late_commit(
        self, resume: CheckpointId | None, before: StoreView, known: KnownCommits
    ) -> bool:
        """Whether a newer checkpoint was committed between the look and the claim that fences it.

        Then also claim the next attempt number, with that checkpoint: the first claim has not been
        reported yet.
        """
        now = self.run.folders().items()
        if all(before.shows_manifest(id_) for id_, folder in now if folder.has_manifest):
            return False
        view = look(self.run)
        others = {
            number: resumed
            for number, resumed in view.resumes.items()
            if number != self.request.attempt
        }
        newest = choose(self.run, replace(view, resumes=others), known).resume
        if newest is None or (resume is not None and newest.id <= resume):
            return False
        record = AttemptRecord(
            attempt=self.request.attempt + 1,
            uid=self.uid,
            resume=newest.id,
            ended=self.request.ended,
        )
        self.run.write_once(layout.attempt_key(record.attempt), record)
        return True

    def _check_listing(self) -> None:
        """Raises StoreUnavailable where the previous attempt exists but the listing lacks it.

        Otherwise this attempt would resume from a checkpoint that the previous one fenced.
        """
        before = layout.attempt_key(self.request.attempt - 1)
        with contextlib.suppress(ObjectNotFound):
            self.run.store.get(self.run.key(before))
            raise self.run.incomplete_listing(before)

    def _lost(self, view: StoreView, choice: Choice, known: KnownCommits) -> str | None:
        """What a start from scratch would lose, and why; None: nothing."""
        # Both lists name a checkpoint that was set aside and has no manifest.
        reasons = list(dict.fromkeys([*choice.set_aside, *evidence(self.run, view, known)]))
        if not reasons:
            return None
        vanished = (
            " (it shows no attempt: its objects were deleted, or another volume is mounted there)"
        )
        return (
            f"{self.run.uri} has no good checkpoint left{'' if view.attempts else vanished}, and "
            "starting from scratch would lose saved progress; "
            f"{'; '.join([*reasons, *choice.skipped])}. Restore the objects named here, if they "
            f"were ever stored (and remove their records in {layout.BAD}), or use another runName"
        )

    def _claimed_before(self, view: StoreView, owner: Owned) -> Resolution:
        """The attempt's number is taken: by us (repeat the answer) or by another claimant."""
        if view.highest == self.request.attempt:
            try:
                record = self.run.read(AttemptRecord, layout.attempt_key(self.request.attempt))
            except CheckpointDamaged:
                record = None
            if record is not None and record.uid == self.uid and self._is_still_good(record, view):
                return self._resolved(
                    record,
                    owner,
                    highest=view.highest,
                    choice=Choice(set_aside=list(record.set_aside)),
                )
        return self._behind(view.highest)

    def _behind(self, highest: int) -> Resolution:
        return self.answer(
            "Behind", message=f"{self.run.uri} already has attempt {highest}", highest=highest
        )

    def _is_still_good(self, record: AttemptRecord, view: StoreView) -> bool:
        """Whether a claimed choice can still be used."""
        if record.resume is None:
            return True
        if record.staged and not view.shows_manifest(record.resume):
            held = record.resume == self.request.staged
            return held and not view.sets_aside(self.run, record.resume)
        folder = view.folders.get(record.resume)
        if folder is None or view.sets_aside(self.run, record.resume):
            return False
        try:
            inspect(self.run, folder)
        except CheckpointDamaged:
            return False
        return True

    def _resolved(
        self, record: AttemptRecord, owner: Owned, *, highest: int, choice: Choice
    ) -> Resolution:
        resume = record.resume
        text = f"resume from {resume.name}" if resume else "start from scratch"
        if record.staged:
            text += ", which is on the workers' disks"
        if choice.skipped:
            text += f" (newer, but never completed: {'; '.join(choice.skipped)})"
        found = self.answer("Resolved", message=text, highest=highest, resume=resume, choice=choice)
        return replace(found, run_id=owner.run_id, trial_of=record.trial_of, staged=record.staged)
