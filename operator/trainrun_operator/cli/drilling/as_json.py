"""A drill as one JSON object; docs/drill.md is its schema.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.curves import Tolerance
    from trainrun_operator.cli.drilling.rehearsed import Drill, Rehearsed
    from trainrun_operator.cli.drilling.remedies import Finding


def as_json(drill: Drill, *, exit_code: int) -> dict[str, Any]:
    """The whole drill."""
    return {
        "version": 1,
        "run": drill.run,
        "exitCode": exit_code,
        "worldSize": drill.world_size,
        "untilStep": drill.until,
        "seconds": drill.seconds,
        "control": _control(drill.within),
        "faults": [_fault(it) for it in drill.rehearsed],
        "findings": [
            *(_finding(it, fault=None) for it in drill.control_findings),
            *(
                _finding(it, fault=rehearsed.scenario.name)
                for rehearsed in drill.rehearsed
                for it in rehearsed.findings
            ),
        ],
        "notes": list(drill.notes),
    }


def _control(within: Tolerance | None) -> dict[str, Any] | None:
    if within is None:
        return None
    return {
        "equal": within.exact,
        "steps": within.steps,
        "allowed": dict(within.allowed),
        "differences": [
            {"metric": it.metric, "step": it.step, "difference": _number(it.size)}
            for it in within.largest
        ],
        "notCompared": [*within.skipped, *within.noisy],
    }


def _fault(it: Rehearsed) -> dict[str, Any]:
    return {
        "name": it.scenario.name,
        "fault": it.scenario.shown or None,
        "store": it.scenario.store,
        "outcome": it.outcome,
        "whyNot": it.why_not,
        "resumedFrom": it.resumed_from,
        "lostSteps": it.lost_steps,
        "curves": it.curves,
        "checkpoints": it.checkpoints,
        "detectSeconds": it.detected,
        "recoverySeconds": it.recovery,
        "stages": dict(it.stages),
        "committedSeconds": it.committed,
        "seconds": it.seconds,
    }


def _finding(it: Finding, *, fault: str | None) -> dict[str, Any]:
    return {"kind": it.kind, "fault": fault, "text": it.text, "remedy": it.remedy}


def _number(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
