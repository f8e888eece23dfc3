"""Whether a script has resumed from the save that was restored, and what a new save says of it.

Layer: agent, without I/O. Until that is known nothing of it is taken: saves of a script that starts
over would replace the good ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun.agent.folder.entries import FolderEntry
from trainrun.agent.folder.notes import FolderNote, Printed, ignores, is_resumed
from trainrun.agent.folder.restoring import FolderRestore

LOWER_SAVES = 2
"""New saves with a number below the restored one show that the script started over. A single one
may be what it saves at each start."""


@dataclass(slots=True, kw_only=True)
class Resumption:
    """Of one attempt."""

    restored: FolderRestore
    printed: Printed
    fails: Callable[[str, str], None]
    """Says why nothing is taken."""
    _behind: set[int] = field(default_factory=set)
    """Numbers of new saves below the restored one."""

    def allows(self, entry: FolderEntry) -> bool:
        """Whether entries may be taken: nothing shows that the script started over."""
        note, rule = self.restored.note, self.restored.rule
        if note is None:
            return True
        # When it changed: by now the output may have got further than what was restored.
        output = self.printed.at(entry.modified) or self.printed.last
        if why := ignores(note, entry, self.restored.known or {}, output):
            given = ", ".join(note.names) or rule.path
            if entry.number is not None:
                self._behind.add(entry.number)
            if len(self._behind) < LOWER_SAVES:
                why = f"{given} was restored, but {why}; check checkpoint.folder.resumeArgs"
                self.fails("ResumeUnknown", why)
                return False
            kept = "; the store has kept the restored save" if rule.carry else ""
            self.restored.refuse(
                "ResumeIgnored",
                f"the script started over, although {given} was restored: {why}. Correct "
                f"checkpoint.folder.resumeArgs and apply the run again{kept}",
            )
            return False
        if not is_resumed(note, entry, self.printed.last):
            self.fails("ResumeUnknown", "the output has shown no step since the restart")
            return False
        return True

    def note(self, entry: FolderEntry) -> tuple[FolderNote, dict[str, object]]:
        """What a checkpoint says about a save, and the metrics that were printed before it."""
        output, last = self.printed.at(entry.modified), self.printed.last
        began, restored = (last.first if last is not None else None), self.restored.note
        note = FolderNote(
            names=entry.names,
            number=entry.number,
            printed=output.step if output is not None else None,
            began=began if restored is None else restored.began,
            form=last.form if last is not None else "",
            total=last.total if last is not None else None,
            since=self.restored.memory.since,
        )
        return note, dict(output.metrics) if output is not None else {}
