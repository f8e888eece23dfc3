"""The life of a search as one JSON object; docs/explain.md is its schema.

Layer: cli; pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainrun.sweep.results import best
from trainrun_operator.api.sweep.status_json import json_object
from trainrun_operator.cli.explaining.sweeps.advice import advice
from trainrun_operator.cli.explaining.sweeps.narrative import (
    STATES,
    advice_of,
    headline,
    restarts,
    worker_seconds,
)
from trainrun_operator.cli.sweeping.as_json import row_json
from trainrun_operator.cli.sweeping.rows import row_of
from trainrun_operator.core.sweep.trial import in_sweep

if TYPE_CHECKING:
    from trainrun.sweep.view import TrialView
    from trainrun_operator.cli.explaining.sweeps.life import SearchLife


def as_json(life: SearchLife) -> dict[str, Any]:
    """The whole story; every trial that did not simply succeed, whatever their number."""
    view, end = life.view, life.view.end
    found = best(view, life.sweep.objective)
    return {
        "version": 1,
        "sweep": life.sweep.folder.run_name,
        "uri": life.sweep.uri,
        "summary": headline(life),
        "end": (
            None
            if end is None
            else {
                "verdict": end.record.verdict,
                "reason": end.record.reason,
                "message": in_sweep(end.record.message),
            }
        ),
        "leader": life.leader,
        "object": _object(life),
        "written": None if life.written is None else life.written.isoformat(),
        "activeSeconds": view.active,
        "sessions": len(view.sessions),
        "restarts": restarts(life),
        "trials": {
            "asked": view.asked,
            **{word: view.count(state) for state, word in STATES.items()},
        },
        "best": None
        if found is None
        else row_json(row_of(found.trial, None, life.sweep.objective)),
        "told": [
            _trial(life, trial)
            for trial in view.trials.values()
            if trial.state != "Succeeded" or trial.restarts or trial.fallback
        ],
        "advice": [
            {"kind": item.kind, "text": item.text, "numbers": dict(item.numbers)}
            for item in advice(life)
        ],
        "remarks": list(life.remarks),
    }


def _object(life: SearchLife) -> dict[str, Any] | None:
    """What the cluster says of it."""
    version = life.sweep.version
    if version is None:
        return None
    metadata, status = version.sweep.metadata, json_object(version.status)
    said = {it: status[it] for it in ("phase", "reason", "message", "conditions")}
    return {"namespace": metadata.namespace, "name": metadata.name, **said}


def _trial(life: SearchLife, trial: TrialView) -> dict[str, Any]:
    row = row_json(row_of(trial, None, life.sweep.objective))
    del row["remark"]
    own = life.lives.get(trial.number)
    return {
        **row,
        "reason": trial.reason,
        "message": in_sweep(trial.message),
        "byChance": trial.fallback,
        "uri": life.folder_of(trial),
        "incidents": None if own is None else [chapter.incident for chapter in own.incidents],
        "workerSeconds": None if own is None else round(worker_seconds([own])[0], 3),
        "advice": advice_of(own),
    }
