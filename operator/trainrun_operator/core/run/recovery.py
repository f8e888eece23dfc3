"""How long a recovery took, part by part, from the loss to the first step of the next attempt.

Layer: core; pure arithmetic. The parts sum to the whole: `detectSeconds` and `recoverySeconds` of
the incident. What is known at the start of the next attempt is written then, the rest with its
first step.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from trainrun_operator.api.run.story import RecoveryStage
from trainrun_operator.core.run.goodput import WAITS, waits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainrun.contract.agent_state import AgentState
    from trainrun_operator.api.run.incident import Incident
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.api.run.story import Bucket
    from trainrun_operator.core.run.view import View

STAGES: tuple[RecoveryStage, ...] = get_args(RecoveryStage)
"""In their order."""

OF_REASON: Mapping[str, RecoveryStage] = {"Flushing": "flush", "Attributing": "decide"}
OF_BUCKET: Mapping[Bucket, RecoveryStage] = {
    "drain": "stop",
    "backoff": "decide",
    "load": "load",
}
"""What is waited for before the start, by its reason, else its bucket; anything else are pods."""

WHY_WIDTH = 300
"""Characters of why a start was cold."""
DOMINATES, WORTH = 0.3, 2.0
"""Part of a recovery, and seconds, from which imports are worth a standby."""


def until_start(view: View, incident: Incident) -> dict[str, float]:
    """The parts up to the start of the next attempt, which is now."""
    chapter = view.status.chapter
    if chapter is None or incident.restart_seconds is None:
        return {}
    found: dict[str, float] = defaultdict(float)
    for reason, seconds in waits(chapter, view.observation.now).items():
        found[_stage_of(reason)] += seconds
    # Waits are told by passes; what none of them has seen went into deciding.
    found["decide"] += incident.restart_seconds - sum(found.values())
    _no_less_than_nothing(found)
    return _shown({"detect": incident.detect_seconds or 0.0, **found})


def with_first_step(view: View, status: TrainRunStatus) -> tuple[Incident, ...]:
    """The incidents, with how long the last recovery took, once, when a first step is reported.

    Not where the run was suspended in between: that wait was wanted.
    """
    record = view.running
    if record is None or not status.incidents:
        return status.incidents
    last = status.incidents[-1]
    agents = [agent for agent in view.agents if agent is not None]
    ages = [agent.first_step for agent in agents if agent.first_step is not None]
    recovers = last.restart_seconds is not None and last.recovery_seconds is None
    if not recovers or last.attempt >= record.attempt or not ages:
        return status.incidents
    took = (view.observation.now - last.time).total_seconds() - max(ages)
    recovered = replace(last, recovery_seconds=round(max(took, 0.0), 3))
    recovered = replace(
        recovered,
        stages=_with_start(recovered, agents, max(ages), usual=_usual(status)),
        warm=sum(agent.warm for agent in agents),
        cold=next((agent.cold[:WHY_WIDTH] for agent in agents if agent.cold), ""),
    )
    return (*status.incidents[:-1], recovered)


def advice(view: View, status: TrainRunStatus) -> str:
    """What would have made the last recovery shorter; said once, and then kept."""
    if view.config.keeps_standbys:
        return ""
    if status.advice or not status.incidents:
        return status.advice
    stages = status.incidents[-1].stages
    imports, whole = stages.get("import", 0.0), sum(stages.values())
    if imports < max(WORTH, DOMINATES * whole):
        return ""
    size = max((agent.import_bytes for agent in view.agents if agent is not None), default=0)
    cost = f"about {size / 1e6:.0f} MB of memory" if size else "the memory of what is imported"
    return (
        f"imports were {imports:.1f} of the {whole:.1f} s of a recovery: workers.warmStart would "
        f"save most of it and cost {cost} per rank (docs/warm-start.md)"
    )


def _usual(status: TrainRunStatus) -> float:
    """Seconds that a step of the attempts before took at most; 0: nobody knows."""
    return status.learned.slowest if status.learned is not None else 0.0


def _with_start(
    incident: Incident, agents: list[AgentState], age: float, *, usual: float
) -> dict[str, float]:
    """With the parts after the start; `age`: of the first step, `usual`: of any other, or 0."""
    if not incident.stages or incident.restart_seconds is None:
        return {}
    assert incident.recovery_seconds is not None
    spawned = min((a.spawned for a in agents if a.spawned is not None), default=age)
    left = max(incident.recovery_seconds - incident.restart_seconds, 0.0)
    prepared = min(max(spawned - age, 0.0), left)
    imports = min(max((a.imports for a in agents), default=0.0), prepared)
    met = min(max((a.rendezvous for a in agents), default=0.0), prepared)
    loaded = min(max((a.load for a in agents), default=0.0), prepared - max(met, imports))
    first = prepared - max(met, imports) - loaded
    # No step has taken that long: it is what the script does once, tokenizers, compilation.
    own = max(first - usual, 0.0) if usual else 0.0
    parts = {
        **incident.stages,
        "start": left - prepared,
        "import": imports,
        "rendezvous": max(met - imports, 0.0),
        "load": incident.stages.get("load", 0.0) + loaded,
        "script": own,
        "firstStep": first - own,
    }
    return _shown(parts)


def _stage_of(reason: str) -> RecoveryStage:
    bucket = WAITS.get(reason, "start")
    return OF_REASON.get(reason, OF_BUCKET.get(bucket, "pods"))


def _no_less_than_nothing(found: dict[str, float]) -> None:
    """Where the clock of another leader was ahead: the largest part gives what is too much."""
    if found["decide"] < 0:
        most = max(found, key=lambda name: found[name])
        found[most] += found["decide"]
        found["decide"] = 0.0


def _shown(parts: Mapping[str, float]) -> dict[str, float]:
    """Those that took any time, in their order."""
    return {name: round(parts[name], 3) for name in STAGES if round(parts.get(name, 0.0), 3) > 0}
