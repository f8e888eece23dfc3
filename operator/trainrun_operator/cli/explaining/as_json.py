"""A life as one JSON object; docs/explain.md is its schema.

Layer: cli; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainrun_operator.api.run.story import chapter_object
from trainrun_operator.cli.explaining.advice import advice
from trainrun_operator.cli.explaining.figures import lost_steps
from trainrun_operator.cli.explaining.narrative import changes, headline
from trainrun_operator.core.run.times import goodput

if TYPE_CHECKING:
    from trainrun_operator.cli.explaining.life import Life


def as_json(life: Life) -> dict[str, Any]:
    """The whole story."""
    changed = changes(life)
    return {
        "version": 1,
        "run": life.name,
        "uri": life.uri,
        "summary": headline(life),
        "phase": life.status.phase if life.status is not None else None,
        "goodput": goodput(life.seconds) if life.reports else None,
        "seconds": life.seconds,
        "chapters": [
            {
                **chapter_object(chapter),
                "lostSteps": lost_steps(chapter),
                "changes": list(changed.get(number, ())),
                "stacks": list(life.hangs.get(str(chapter.incident.get("evidence")), ())),
            }
            for number, chapter in enumerate(life.chapters)
        ],
        "attempts": [
            {
                "attempt": record.attempt,
                "resumedFrom": (
                    None
                    if record.resume is None
                    else {"attempt": record.resume.attempt, "step": record.resume.step}
                ),
                "endedBefore": record.ended,
                "setAside": list(record.set_aside),
            }
            for record in life.attempts
        ],
        "checkpoints": [
            {
                "name": info.id.name,
                "step": info.id.step,
                "attempt": info.id.attempt,
                "state": info.state,
                "reason": info.reason,
                "committed": info.modified or None,
            }
            for info in life.checkpoints
        ],
        "tasks": None if life.tasks is None else life.tasks.counts,
        "advice": [
            {"kind": item.kind, "text": item.text, "numbers": dict(item.numbers)}
            for item in advice(life)
        ],
        "remarks": list(life.remarks),
    }
