"""Choosing and claiming the resume point of an attempt.

Layer: rules over `RunStore`, used by slot 0's agent. Invariants: two attempts never get the same
number; an attempt's choice is claimed write-once before anybody hears of it; once anything was
committed nothing is never chosen; trouble with the store is an outcome, not an exception.
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
from trainrun.contract import layout
from trainrun.contract.agent_state import Outcome, Resolution
from trainrun.contract.answer import ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CheckpointDamaged, ObjectNotFound, StoreError, StoreUnavailable

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
    """Claim the resume point that is requested (attempts are counted from 1) for the TrainRun
    `uid`.

    `generation` is that of its folder in which the run is; 0: not known, then the request says
    which, and the answer too; `params` are those of a sweep's trial, as JSON: the folder of other
    ones is refused. While the request knows of no commit the store may be a new one, otherwise an
    empty listing is not believed. Repeating it for an attempt that is claimed already gives the
    same answer, while that choice is still good (else `Behind`: take the next number). With `look`
    nothing is claimed or written (see `OwnerLife`). Never raises for trouble with the store.
    """
    place = replace(run, generation=generation) if generation else run
    claimant = _Claimant(run=place, request=request, uid=uid, params=params)
    try:
        if request.look:
            seen = life_of_owner(place, watch=watch)
            message = f"the owner's beat in {place.uri}: {seen}"
            return replace(claimant.answer("Looked", message=message), owner=seen)
        if request.committed is None:
            # This may be the first use of the store: make it ready, and find out what it lacks.
            run.store.probe()
        if not generation:
            place = enter(run, uid=uid, fresh=request.on_existing == "StartFresh")
            claimant = replace(claimant, run=place)
        return claimant.resolve(watch=watch)
    except StoreError as error:
        return claimant.answer(_outcome(error), message=str(error))


def prove(run: RunStore, request: ResolveRequest) -> Resolution:
    """Read the manifest of what is committed, or without that list attempts: `Resolved` where the
    store lets us, whatever it holds. Claims and writes nothing; never raises for trouble with the
    store."""
    attempt, point = request.attempt, request.committed
    try:
        if point is None:
            run.attempts()
        else:
            with contextlib.suppress(CheckpointDamaged):  # told by who chooses it, or asks for it
                read_manifest(run, point)
    except StoreError as error:
        return Resolution(attempt=attempt, outcome=_outcome(error), message=str(error))
    return Resolution(attempt=attempt, outcome="Resolved", resume=point)


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
        """Whether the record of success is there; believed only where two answers agree on it.

        What follows cannot be taken back, and a proxy may answer in the store's place.
        """
        problem = ""
        try:
            self.run.read(FinishedRecord, layout.FINISHED)
        except ObjectNotFound:
            return False
        except CheckpointDamaged as error:
            problem = str(error)
        if not problem and all(item.key != layout.FINISHED for item in self.run.objects("")):
            problem = "it can be read, but the listing does not show it"
        if problem:
            raise StoreUnavailable(
                f"{self.run.uri}/{layout.FINISHED} is not believed: {problem}. Does something "
                "answer in the store's place, a proxy perhaps? If the object itself is damaged, "
                "delete it to go on with the run, or use another runName"
            )
        return True

    def _finished(self) -> Resolution:
        return self.answer(
            "Finished",
            message=f"{self.run.uri} has finished before: nothing is left to do. To train again "
            "set storage.onExisting: StartFresh, or use another storage.runName",
        )

    def _claim(self, view: StoreView, owner: Owned) -> Resolution:
        if self.request.attempt > 1 and self.request.attempt - 1 not in view.attempts:
            self._check_listing()
        known = {
            checkpoint: how
            for checkpoint, how in (
                (owner.committed, "its owner had committed it"),
                (self.request.committed, "it was reported to be committed"),
            )
            if checkpoint is not None
        }
        choice = choose(self.run, view, known)
        if choice.suspect is not None:
            return self.answer("Suspect", message=choice.suspect.message, choice=choice)
        resume = choice.resume.id if choice.resume else None
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
        )
        if not self.run.write_once(layout.attempt_key(self.request.attempt), record):
            view = look(self.run)
            if view.highest < self.request.attempt:
                raise self.run.incomplete_listing(layout.attempt_key(self.request.attempt))
            return self._claimed_before(view, owner)
        if self._claim_late_commit(resume, view, known):
            return self._behind(self.request.attempt + 1)
        return self._resolved(record, owner, highest=self.request.attempt, choice=choice)

    def _claim_late_commit(
        self, resume: CheckpointId | None, before: StoreView, known: KnownCommits
    ) -> bool:
        """Whether something newer was committed between the look and the claim, which fences it.

        Then the next attempt number is claimed as well, with that: nobody has heard of our claim.
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
        """The listing does not show the attempt before: is it really not there?

        What that has left behind would be resumed from.
        """
        before = layout.attempt_key(self.request.attempt - 1)
        with contextlib.suppress(ObjectNotFound):
            self.run.store.get(self.run.key(before))
            raise self.run.incomplete_listing(before)

    def _lost(self, view: StoreView, choice: Choice, known: KnownCommits) -> str | None:
        """Why starting from nothing would lose something; None when it would not."""
        # What was set aside and has no manifest is told by both.
        reasons = list(dict.fromkeys([*choice.set_aside, *evidence(self.run, view, known)]))
        if not reasons:
            return None
        vanished = (
            " (it shows no attempt at all: were its objects deleted, or is another volume mounted "
            "in their place?)"
        )
        return (
            f"{self.run.uri} has no good checkpoint left{'' if view.attempts else vanished}, and "
            "starting from nothing would lose what was committed; "
            f"{'; '.join([*reasons, *choice.skipped])}. Restore the objects named here (and remove "
            f"the records in {layout.BAD}), or use another runName"
        )

    def _claimed_before(self, view: StoreView, owner: Owned) -> Resolution:
        """The attempt's number is taken: by us (say the same again) or by somebody else."""
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
            "Behind", message=f"{self.run.uri} knows attempt {highest} already", highest=highest
        )

    def _is_still_good(self, record: AttemptRecord, view: StoreView) -> bool:
        """Whether a claimed choice can still be used."""
        if record.resume is None:
            return True
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
        text = f"resume from {resume.name}" if resume else "start from nothing"
        if choice.skipped:
            text += f" (newer, but never completed: {'; '.join(choice.skipped)})"
        found = self.answer("Resolved", message=text, highest=highest, resume=resume, choice=choice)
        return replace(found, run_id=owner.run_id, trial_of=record.trial_of)
