"""Lost results: which to search for, which to rebuild, and which cannot be rebuilt.

Layer: tasks, pure. A rebuild depends on what is lost and on who waits now, so it is decided again
whenever one of them may have changed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from trainrun.tasks import LostReason
from trainrun.tasks.calls import ObjectRef, ProgramOptions
from trainrun.tasks.driver_state import Broken, DriverState, Task
from trainrun.tasks.records import Rebuild
from trainrun.tasks.replayed_state import Entry


class Recovery:
    """See the module."""

    def __init__(self, state: DriverState, options: ProgramOptions) -> None:
        self._state = state
        self._options = options
        self._asked: dict[ObjectRef, set[str]] = {}
        """Running searches, and the lost keys whose rebuild is decided after the answer."""
        self._seen: set[ObjectRef] = set()
        """Found by such a search."""
        self._given_up: set[str] = set()
        """Keys with lost results that cannot be rebuilt."""
        self._argument_sizes: OrderedDict[str, int] = OrderedDict()
        """Bytes of the arguments of finished calls, oldest first."""
        self._bytes = 0

    def wanted(self, key: str) -> None:
        """A waiter was added for this key."""
        if key in self._given_up:
            self._state.broken.pop(key, None)

    def lost(self, ref: ObjectRef, why: str) -> None:
        """This result is lost."""
        state = self._state
        self._answered(ref)
        if not state.stored(ref):
            return
        if state.there(ref):
            state.flip(ref, there=False)
        state.off[ref] = why
        state.plan.settled[ref.key] = None
        state.dirty[ref.key] = None

    def present(self, ref: ObjectRef) -> None:
        """This result exists."""
        state = self._state
        if self._answered(ref) and ref not in state.off:
            self._seen.add(ref)
        if ref in state.off:
            del state.off[ref]
            if state.there(ref):
                state.flip(ref, there=True)
            self.again(ref.key)

    def again(self, key: str) -> None:
        """This key can run again, so keys that could not be rebuilt without it are tried again."""
        keys, self._given_up = self._given_up | {key}, set()
        for its in sorted(keys):
            self._state.settle(its, None)
            self._state.dirty[its] = None

    def missing(self, ref: ObjectRef) -> None:
        """A worker could not read this result: search for it before another reader tries."""
        state = self._state
        if state.there(ref) and state.stored(ref):
            state.flip(ref, there=False)
            state.off[ref] = None
            self._seen.discard(ref)
            self._look(ref)

    def finished(self, task: Task) -> None:
        """The task has its results. Its arguments are kept for rebuilds, up to the limit."""
        self._argument_sizes[task.call.key] = size = len(task.call.arguments)
        self._bytes += size
        while self._bytes > self._options.lineage_limit:
            key, size = self._argument_sizes.popitem(last=False)
            self._bytes -= size
            oldest = self._state.tasks[key]
            oldest.evicted, oldest.call = True, replace(oldest.call, arguments=b"")

    def _in_use(self, key: str) -> None:
        """The key runs again: keep its arguments meanwhile."""
        self._bytes -= self._argument_sizes.pop(key, 0)

    def rebuilding(self, key: str) -> None:
        """The log has a rebuild of this key: forget what was found out about its old results."""
        state = self._state
        for ref in state.results(key):
            state.off.pop(ref, None)
            self._answered(ref)
            self._seen.discard(ref)
        self._in_use(key)
        if key in state.tasks:
            # Those searches were for this rebuild; the next one searches again.
            self._seen.difference_update(state.tasks[key].call.inputs)

    def rebuilds(self, key: str) -> list[Rebuild]:
        """The rebuilds of this key, if a result is lost, wanted, and may be rebuilt."""
        state = self._state
        lost = state.lost_refs(key)
        if not lost or key in state.broken or not state.waited_for(key, lost):
            return []
        members = self._with_ancestors(key)
        if isinstance(members, Broken):
            self._given_up.add(key)
            state.settle(key, members)
            return []
        members.sort(key=lambda member: state.tasks[member].order)
        return [self._rebuild(member) for member in members]

    def _rebuild(self, key: str) -> Rebuild:
        state = self._state
        state.tasks[key].phase = "Logging"
        self._in_use(key)
        ref = state.lost_refs(key)[0]
        why = f"result {ref.index}: {state.off[ref]}"
        return Rebuild(key=key, generation=state.entry(key).generation + 1, why=why)

    def _with_ancestors(self, key: str) -> list[str] | Broken:
        """This key and every task it needs to run; empty while an input is being searched for."""
        state = self._state
        members: dict[str, None] = {}
        todo, unanswered = [key], list[ObjectRef]()
        while todo:
            member = todo.pop()
            task = state.tasks.get(member)
            if member in members or (task is not None and task.phase == "Logging"):
                continue
            reason = self._reason(state.entry(member), task)
            if reason is not None:
                return state.lost(reason, member, wanted=key)
            members[member] = None
            for ref in state.tasks[member].call.inputs:
                if (broken := state.break_of(ref.key)) is not None:
                    return broken
                if state.off.get(ref) is not None:
                    todo.append(ref.key)
                elif state.stored(ref) and ref not in self._seen:
                    self._look(ref)
                    unanswered.append(ref)
        if unanswered:
            # Not after each answer, since a call may take ten thousand results. When the middle one
            # is answered, about half of them are.
            self._asked[unanswered[len(unanswered) // 2]].add(key)
            return []
        return list(members)

    def _reason(self, entry: Entry, task: Task | None) -> LostReason | None:
        """Why this task may not run again; None if it may."""
        if entry.given:
            return "Put"
        if task is None:
            return "Unknown"
        if task.cancelling:
            return "Cancelled"
        if self._options.lineage == "off":
            return "LineageDisabled"
        if task.call.options.max_retries == 0:
            return "RetriesDisabled"
        limit = task.call.options.max_reconstructions
        limit = self._options.max_reconstructions if limit is None else limit
        if 0 <= limit <= entry.rebuilds:
            return "ReconstructionsExceeded"
        return "LineageEvicted" if task.evicted else None

    def _look(self, ref: ObjectRef) -> None:
        if ref not in self._asked:
            self._asked[ref] = set()
            self._state.plan.looks.append((ref.key, ref.index))

    def _answered(self, ref: ObjectRef) -> bool:
        asked = ref in self._asked
        self._state.dirty.update(dict.fromkeys(sorted(self._asked.pop(ref, ()))))
        return asked
