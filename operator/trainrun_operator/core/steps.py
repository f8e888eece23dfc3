"""Checkpoint steps as the gang sees them: who has what, what can be committed, what is dropped.

Layer: core. Made from the agents' `staged` lists; the store itself decides what is good.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainrun.protocol import AgentState, CheckpointId, Committed, OpenStep, StagedStep
from trainrun_operator.core.view import View, done


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

    def staged_by(self, slots: int) -> bool:
        """Nothing more has to come from the training for this step."""
        return bool(self.whole & self.staged) or len(self.staged) == slots


def gang_steps(view: View) -> tuple[GangStep, ...]:
    """The newest attempt's steps that some slot has files for, ascending."""
    entries: dict[int, dict[int, StagedStep]] = {}
    dropped = dropped_steps(view)
    for slot, agent in enumerate(view.agents):
        for entry in agent.staged if agent is not None else ():
            if entry.step not in dropped:
                entries.setdefault(entry.step, {})[slot] = entry
    steps = (_gang_step(view, step, by_slot) for step, by_slot in sorted(entries.items()))
    return tuple(step for step in steps if step.brought)


def dropped_steps(view: View) -> frozenset[int]:
    """Steps that some worker has dropped already: no longer a checkpoint for anybody."""
    return frozenset(step for a in view.agents if a is not None for step in a.dropped)


def _gang_step(view: View, step: int, by_slot: dict[int, StagedStep]) -> GangStep:
    staged = {slot for slot, entry in by_slot.items() if entry.complete}
    staged |= {slot for slot, agent in enumerate(view.agents) if passed(agent, step)} - set(by_slot)
    return GangStep(
        step=step,
        brought=frozenset(slot for slot, entry in by_slot.items() if entry.ranks),
        staged=frozenset(staged),
        uploaded=frozenset(slot for slot, entry in by_slot.items() if entry.uploaded),
        whole=frozenset(slot for slot, entry in by_slot.items() if entry.whole),
        after_save=any(entry.after_save for entry in by_slot.values()),
    )


def passed(agent: AgentState | None, step: int) -> bool:
    """Every process of the worker has reported this step or a later one, or ended well."""
    if agent is None or not agent.steps:
        return False
    return done(agent) or all(at is not None and at >= step for at in agent.steps)


def newest_commit(view: View) -> Committed | None:
    """The newest commit of the newest attempt that any agent knows."""
    commits = [agent.committed for agent in view.agents if agent is not None and agent.committed]
    return max(commits, key=lambda c: (c.id, c.size_bytes, -c.age), default=None)


def open_steps(view: View) -> tuple[OpenStep, ...]:
    """Steps that workers without files must know of, and slot 0's agent to commit them."""
    committed = committed_step(view)
    return tuple(
        OpenStep(step=step.step, slots=tuple(sorted(step.uploaded)))
        for step in gang_steps(view)
        if step.step > committed
    )


def committed_step(view: View) -> int:
    """The newest committed step of the newest attempt, -1 if there is none."""
    commit = newest_commit(view)
    return commit.id.step if commit is not None else -1


def committed_id(view: View) -> CheckpointId | None:
    """The newest commit of the newest attempt, as agents are told."""
    commit = newest_commit(view)
    return commit.id if commit is not None else None


def saved_step(view: View) -> int | None:
    """The step that the gang saved on request, once every rank has staged it."""
    slots = len(view.roster)
    return max(
        (s.step for s in gang_steps(view) if s.after_save and s.staged_by(slots)), default=None
    )


def flushable(view: View, lost: frozenset[int]) -> tuple[int, ...]:
    """Steps not committed yet whose missing parts are all on surviving workers."""
    slots = frozenset(range(len(view.roster)))
    committed = committed_step(view)

    def survives(step: GangStep) -> bool:
        if step.whole - lost or step.whole & step.uploaded:
            return True
        return all(slot in step.uploaded or slot in step.staged - lost for slot in slots)

    return tuple(s.step for s in gang_steps(view) if s.step > committed and survives(s))


def to_flush(view: View) -> tuple[int, ...]:
    """What agents still bring into the store for the attempt that has ended.

    Normally what the ending named: the next attempt must not wait for more. A run that is suspended
    has time, so it also takes the step that became complete while its processes were stopped.
    """
    ending = view.status.ending
    if ending is None:
        return ()
    if ending.kind != "Suspend":
        return ending.flush
    return tuple(sorted({*ending.flush, *flushable(view, frozenset())}))


def to_drop(view: View) -> tuple[int, ...]:
    """Steps to forget because some worker's backlog is full: the same for all ranks.

    Never the oldest waiting one (its upload is under way: dropping it would start the same race
    again), never the newest complete one, never an incomplete one. What one worker has dropped the
    others drop too.
    """
    committed = committed_step(view)
    begun = {
        entry.step
        for agent in view.agents
        for entry in (agent.staged if agent is not None else ())
        if entry.step in dropped_steps(view)
    }
    waiting = [s for s in gang_steps(view) if s.step > committed]
    if any(_backlog(agent, committed) >= view.config.max_pending for agent in view.agents):
        complete = [s.step for s in waiting if s.staged_by(len(view.roster))]
        begun |= {step for step in complete[:-1] if step != waiting[0].step}
    return tuple(sorted(begun))


def _backlog(agent: AgentState | None, committed: int) -> int:
    if agent is None:
        return 0
    return sum(1 for s in agent.staged if s.ranks and not s.uploaded and s.step > committed)


def last_brought(view: View) -> int:
    """The highest step that somebody has files for and that is not known to be committed."""
    return max((s.step for s in gang_steps(view)), default=-1)
