"""Checkpoint steps of the gang: which slot has which files, what to commit and what to drop.

Layer: core. Made from the agents' `staged` lists; the store itself decides what is good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from trainrun.contract.agent_state import AgentState, Committed
from trainrun.contract.answer import OpenStep
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.staged_parts import CopiedPart, StagedStep
from trainrun_operator.core.run.pairing import serving
from trainrun_operator.core.run.view import View, done, once

NO_BUDDY = "NoBuddy"
"""Type of the condition, and of the problem of an agent that cannot copy its partner's files."""

KEPT = 2
"""With uploadEvery: how many of the newest complete steps stay on the workers' disks. The second
is there in case the newest turns out to be torn; one that is copied or being copied stays, too, and
does for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStep:
    """One step of the newest attempt over all slots."""

    step: int
    brought: frozenset[int]
    """Slots that have files for it."""
    staged: frozenset[int]
    """Slots whose part is known in full, with or without files."""
    uploaded: frozenset[int]
    """Slots whose part is in the store."""
    whole: frozenset[int]
    """Slots whose files are the whole checkpoint."""
    after_save: bool
    due: bool
    """Its upload was ordered, or some slot has uploaded its part."""
    age: float
    """Seconds since it was first staged."""
    copies: frozenset[tuple[int, int]]
    """Slots whose part is copied in full, each with the slot that has the copy."""
    begun: bool
    """Some worker copies it, or has."""

    def staged_by(self, slots: int) -> bool:
        """No more files are needed from the training for this step."""
        return bool(self.whole & self.staged) or len(self.staged) == slots


def gang_steps(view: View) -> tuple[GangStep, ...]:
    """The newest attempt's steps that some slot has files for, ascending."""
    entries: dict[int, dict[int, StagedStep]] = {}
    dropped = dropped_steps(view)
    for slot in range(len(view.agents)):
        for entry in _parts(view, slot):
            if entry.step not in dropped:
                entries.setdefault(entry.step, {})[slot] = entry
    copies: dict[int, list[tuple[int, CopiedPart]]] = {}
    for agent in view.heard:
        for copy in agent.copies:
            if copy.step not in dropped:
                copies.setdefault(copy.step, []).append((agent.slot, copy))
    for step, held in copies.items():
        for copy in (copy for _, copy in held if copy.complete):
            # What was copied stays known where the worker is lost, or its own word is older.
            known = entries.setdefault(step, {}).get(copy.slot) or StagedStep(
                step=step, ranks=copy.ranks, complete=True, whole=copy.whole
            )
            entries[step][copy.slot] = replace(known, uploaded=known.uploaded or copy.uploaded)
    steps = (
        _gang_step(view, step, by_slot, copies.get(step, ()))
        for step, by_slot in sorted(entries.items())
    )
    return tuple(step for step in steps if step.brought)


def _parts(view: View, slot: int) -> Iterable[StagedStep]:
    """The staged steps of a slot; of a vanished worker only those that it had stored."""
    agent, gone = view.agents[slot], view.last_words.get(slot)
    if agent is not None:
        return agent.staged
    return (entry for entry in gone.staged if entry.uploaded) if gone is not None else ()


def dropped_steps(view: View) -> frozenset[int]:
    """Steps that some worker has dropped: they can no longer become checkpoints."""
    return frozenset(step for agent in view.heard for step in agent.dropped)


def _gang_step(
    view: View,
    step: int,
    by_slot: dict[int, StagedStep],
    copies: Iterable[tuple[int, CopiedPart]],
) -> GangStep:
    held = [(copy.slot, holder, copy.complete) for holder, copy in copies]
    staged = {slot for slot, entry in by_slot.items() if entry.complete}
    by_agent = view.config.folder is not None
    past = (s for s, agent in enumerate(view.agents) if passed(agent, step, by_agent=by_agent))
    staged |= {*past} - set(by_slot)
    return GangStep(
        step=step,
        brought=frozenset(slot for slot, entry in by_slot.items() if entry.ranks),
        staged=frozenset(staged),
        uploaded=frozenset(slot for slot, entry in by_slot.items() if entry.uploaded),
        whole=frozenset(slot for slot, entry in by_slot.items() if entry.whole),
        after_save=any(entry.after_save for entry in by_slot.values()),
        due=any(entry.due or entry.uploaded for entry in by_slot.values()),
        age=max(entry.age for entry in by_slot.values()),
        copies=frozenset((slot, holder) for slot, holder, complete in held if complete),
        begun=bool(held),
    )


def passed(agent: AgentState | None, step: int, *, by_agent: bool = False) -> bool:
    """The processes of the worker add nothing more to this step.

    Its agent says so, or each process has reported a later step or ended well. A report of this
    very step does not count: files may follow. `by_agent`: only the agent knows.
    """
    if agent is not None and agent.passed >= step:
        return True
    if agent is None or not agent.steps or by_agent:
        return False
    left = {end.rank for end in agent.exits if end.well}
    ranks = enumerate(agent.steps, agent.slot * len(agent.steps))
    return done(agent) or all(rank in left or (at is not None and at > step) for rank, at in ranks)


def newest_commit(view: View) -> Committed | None:
    """The newest commit that any agent of the newest attempt knows: its own, or that of a resume
    point that was on the workers' disks."""
    commits = [agent.committed for agent in view.heard if agent.committed]
    return max(commits, key=lambda c: (c.id, c.size_bytes, -c.age), default=None)


def open_steps(view: View) -> tuple[OpenStep, ...]:
    """Uncommitted steps: workers without files must know them, slot 0's agent commits them."""
    committed = committed_step(view)
    return tuple(
        OpenStep(step=step.step, slots=tuple(sorted(step.uploaded)))
        for step in gang_steps(view)
        if step.step > committed
    )


def committed_step(view: View) -> int:
    """The newest committed step that the newest attempt has saved, -1 if there is none."""
    commit = newest_commit(view)
    own = commit is not None and commit.id.attempt == view.status.attempt
    return commit.id.step if commit is not None and own else -1


def committed_id(view: View) -> CheckpointId | None:
    """The id of `newest_commit`; None: there is none."""
    commit = newest_commit(view)
    return commit.id if commit is not None else None


def newest_known(view: View) -> CheckpointId | None:
    """The newest checkpoint that must be in the store: committed, or handed out before."""
    record = view.status.start_record
    shown = view.status.checkpoint  # written for display, so later than the agents' reports
    found = (
        shown.id if shown is not None else None,
        committed_id(view),
        record.resume_point if record is not None and not record.staged else None,
    )
    return max((checkpoint for checkpoint in found if checkpoint is not None), default=None)


def saved_step(view: View) -> int | None:
    """The step that the gang saved on request, once every rank has staged it."""
    slots = len(view.roster)
    return max(
        (s.step for s in gang_steps(view) if s.after_save and s.staged_by(slots)), default=None
    )


def flushable(view: View, lost: frozenset[int]) -> tuple[int, ...]:
    """Steps not committed yet whose missing parts are all on surviving workers, or copied to them.

    With uploadEvery only the newest is needed, and the one that is being uploaded.
    """
    slots = frozenset(range(len(view.roster)))
    committed = committed_step(view)

    def survives(step: GangStep) -> bool:
        copied = {slot for slot, holder in step.copies if holder not in lost}
        there = step.uploaded | (step.staged - lost) | copied
        return bool(step.whole & there) or there >= slots

    found = [s for s in gang_steps(view) if s.step > committed and survives(s)]
    if view.config.upload_every is not None:
        found = [*[s for s in found[:-1] if s.due][:1], *found[-1:]]
    return tuple(s.step for s in found)


def to_drop(view: View) -> tuple[int, ...]:
    """Steps to drop, the same for all ranks: some worker's backlog is full, or newer steps replace
    them (uploadEvery).

    Without uploadEvery never the oldest uncommitted one (its upload is in progress: dropping it
    would start the same race again), never the newest complete one, never an incomplete one. What
    one worker has dropped all others drop too.
    """
    committed = committed_step(view)
    begun = {
        entry.step
        for agent in view.heard
        for entry in agent.staged
        if entry.step in dropped_steps(view)
    }
    uncommitted = [s for s in gang_steps(view) if s.step > committed]
    if view.config.upload_every is not None:
        complete = [s.step for s in _complete(view)]
        staying = {*complete[-1:], *({to_copy(view), copied_by_all(view)} & {*complete})}
        staying |= {*complete[-KEPT:]} if len(staying) < KEPT else set()
        begun |= {*complete} - staying - {*to_upload(view)}
    elif any(_backlog(agent, committed) >= view.config.max_pending for agent in view.heard):
        complete = [s.step for s in uncommitted if s.staged_by(len(view.roster))]
        begun |= {step for step in complete[:-1] if step != uncommitted[0].step}
    return tuple(sorted(begun))


def _backlog(agent: AgentState, committed: int) -> int:
    return sum(1 for s in agent.staged if s.ranks and not s.uploaded and s.step > committed)


def to_copy(view: View) -> int:
    """The step that buddies copy now; -1: none, or some worker is not heard."""
    step = _copied_now(view)
    return step.step if step is not None else -1


def pairs_to_copy(view: View) -> Mapping[int, int]:
    """By slot, its buddy, for the slots whose part of that step is copied."""
    step = _copied_now(view)
    return _pairs(view, step) if step is not None else serving(view)


@once
def _copied_now(view: View) -> GangStep | None:
    """The newest complete step, once every buddy has the one before: so all workers still hold the
    newest step that is copied everywhere."""
    if not serving(view) or None in view.agents:
        return None
    complete = _complete(view)
    late = [step for step in complete if step.begun and not _is_copied(view, step)]
    return next(reversed(late or complete), None)


def copied_by_all(view: View) -> int:
    """The newest step of which every buddy has its copy; -1: there is none."""
    copied = (step.step for step in _complete(view) if step.begun and _is_copied(view, step))
    return max(copied, default=-1)


def _is_copied(view: View, step: GangStep) -> bool:
    """Every part, or a whole checkpoint, is on two nodes or in the store. Nobody waits for a buddy
    that cannot copy."""
    unable = {a.slot for a in view.heard for p in a.problems if p.type == NO_BUDDY}
    pairs = _pairs(view, step).items()
    left = {p for p in pairs if p[1] not in unable and p[0] not in step.uploaded} - step.copies
    return not left or any(slot in step.whole for slot, _ in step.copies)


def _pairs(view: View, step: GangStep) -> Mapping[int, int]:
    """The pairs that copy a step: with a whole checkpoint, those of the slots that have it."""
    pairs, whole = serving(view), step.whole
    return {slot: buddy for slot, buddy in pairs.items() if not whole or slot in whole}


def to_upload(view: View) -> tuple[int, ...]:
    """With uploadEvery, the steps to upload: those that are due, and the newest complete one once
    its time has come, or the training has ended. Without: none is named, since all are uploaded.

    A step stays due, or workers that learn of a newer one at different times would upload parts of
    different steps.
    """
    if view.config.upload_every is None:
        return ()
    complete, left = _complete(view), until_upload(view)
    newest = complete[-1:] if view.all_done or left == timedelta(0) else ()
    return tuple(step.step for step in complete if step.due or step in newest)


def until_upload(view: View) -> timedelta:
    """With uploadEvery, the time until the newest complete step is due; `timedelta.max`: there is
    none, it is due already, or maxPending steps wait for the store."""
    every = view.config.upload_every
    complete = _complete(view) if every is not None else ()
    due = [step for step in complete if step.due]
    full = len(due) >= view.config.max_pending
    if every is None or not complete or complete[-1].due or full:
        return timedelta.max
    committed = committed_id(view)
    commits = (a.committed for a in view.heard if a.committed and a.committed.id == committed)
    begun = max((agent.spawned or 0.0 for agent in view.heard), default=0.0)
    passed = max((commit.age for commit in commits), default=begun)
    passed = min([passed, *(step.age for step in due)])
    return max(every - timedelta(seconds=passed), timedelta(0))


@once
def _complete(view: View) -> tuple[GangStep, ...]:
    """Steps that every slot has staged and that are not committed, ascending."""
    committed, slots = committed_step(view), len(view.roster)
    return tuple(s for s in gang_steps(view) if s.step > committed and s.staged_by(slots))


def newest_staged(view: View) -> int | None:
    """The newest step that every slot has staged and that is not committed; None: there is none."""
    carried = on_disks(view)
    default = carried.step if carried is not None else None
    return max((step.step for step in _complete(view)), default=default)


@once
def on_disks(view: View) -> CheckpointId | None:
    """The resume point of the newest attempt while it is on the workers' disks only; None: it is in
    the store, or there is none."""
    record = view.record
    if record is None or not record.staged or committed_id(view) is not None:
        return None
    return record.resume_point


@once
def carried(view: View) -> CheckpointId | None:
    """That resume point, while every worker of the attempt holds its part and uploads it."""
    point = on_disks(view)
    held = all(agent is not None and point in agent.holds for agent in view.agents)
    return point if held else None


def in_place(view: View, steps: tuple[int, ...]) -> bool:
    """Whether the workers can start from what they have staged of the newest of these steps. With
    `whole` only one of several workers has it."""
    newest = [step for step in gang_steps(view) if step.step in steps[-1:]]
    return not any(step.whole for step in newest) or len(view.roster) == 1


def last_brought(view: View) -> int:
    """The highest step that some slot has files for; -1: there is none."""
    return max((s.step for s in gang_steps(view)), default=-1)
