"""How a run spent its time, computed from its chapters, and how long a recovery took.

Layer: core; pure arithmetic. The seconds of a chapter are divided among buckets without a rest, so
the buckets of a run add up to its time. A step counts as useful once, and only if its result
survived: steps beyond the checkpoint that the next attempt resumed from are rework. The parts of a
recovery, from the loss to the first step of the next attempt, add up to the whole: `detectSeconds`
and `recoverySeconds` of the incident. The parts known at the start of the next attempt are written
then, the others with its first step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import get_args

from trainrun.contract.agent_state import AgentState
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Cause, Incident
from trainrun_operator.api.run.story import Bucket, Chapter, RecoveryStage
from trainrun_operator.core.run.view import View

BUCKETS: tuple[Bucket, ...] = get_args(Bucket)
"""In display order."""

WAITS: Mapping[str, Bucket] = {
    "Unschedulable": "queue",
    "SchedulingGated": "queue",
    "QuotaExceeded": "queue",
    "Forbidden": "queue",
    "NameTaken": "queue",
    "Invalid": "queue",
    "InvalidTemplate": "queue",
    "GangNotPlaced": "queue",
    "ImagePull": "image",
    "ConfigError": "image",
    "BackingOff": "backoff",
    "Resolving": "load",
    "StorageUnavailable": "load",
    "StorageMisconfigured": "load",
    "StorageInUse": "load",
    "NoGoodCheckpoint": "load",
    "CheckpointSuspect": "load",
    "Ending": "drain",
    "Stopping": "drain",
    "Flushing": "drain",
    "Suspending": "drain",
    "Attributing": "drain",
}
"""The bucket of each reason to wait between two attempts; of any other reason: `start`."""

ROUNDING = 0.01
"""Seconds."""

NORMAL_STEPS = 2
"""A pause of at most this many usual steps after the last one is not a hang."""


def divided(chapter: Chapter, until: datetime) -> dict[str, float]:
    """The seconds since the beginning of a chapter, by bucket; never negative.

    The clocks of two leaders differ: times that are out of order count as equal, and parts that
    exceed the whole are scaled down.
    """
    found: dict[str, float] = defaultdict(float)
    if chapter.workers:
        _attempt(chapter, max(min(chapter.ended or until, until), chapter.begun), found)
    for reason, waited in waits(chapter, until).items():
        found[WAITS.get(reason, "start")] += waited
    parts: dict[str, float] = {}
    for name in BUCKETS:
        if (part := round(found[name], 3)) > 0:
            parts[name] = part
    whole, known = max((until - chapter.begun).total_seconds(), 0.0), sum(parts.values())
    if known > whole + ROUNDING:
        parts = {name: part * whole / known for name, part in parts.items()}
    rest = round(whole - sum(parts.values()), 3)
    # A rest from rounding is not unknown time.
    place = "unknown" if rest > ROUNDING else max(parts, key=lambda name: parts[name], default="")
    return total(parts, {place: rest})


def waits(chapter: Chapter, until: datetime) -> dict[str, float]:
    """The seconds waited while no attempt ran, by reason, including the current wait."""
    if chapter.since is None:
        return dict(chapter.waits)
    now = chapter.waits.get(chapter.doing, 0.0) + (until - chapter.since).total_seconds()
    return {**chapter.waits, chapter.doing: now}


def total(parts: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """The sum of two divisions."""
    both = {name: round(parts.get(name, 0.0) + more.get(name, 0.0), 3) for name in BUCKETS}
    return {name: amount for name, amount in both.items() if amount}


def goodput(parts: Mapping[str, float]) -> float | None:
    """The useful share of all time; None: no time has passed."""
    whole = sum(parts.values())
    return parts.get("useful", 0.0) / whole if whole > 0 else None


def _attempt(chapter: Chapter, stop: datetime, found: dict[str, float]) -> None:
    """Divide the time of an attempt, from its start record until it was given up."""
    spawned = max(min(chapter.spawned or chapter.begun, stop), chapter.begun)
    found["start"] += (spawned - chapter.begun).total_seconds()
    first = max(min(chapter.first_step or stop, stop), spawned)
    rest = (first - spawned).total_seconds()
    meeting = min(chapter.rendezvous_seconds, rest)
    loading = min(chapter.load_seconds, rest - meeting)
    found["rendezvous"] += meeting
    found["load"] += loading
    rest -= meeting + loading
    if chapter.first_step is None:
        # A script that never reports may have trained all the time.
        found["first_step" if chapter.reports else "unknown"] += rest
        return
    found["first_step"] += rest
    _training(chapter, first, stop, found)


def _training(chapter: Chapter, first: datetime, stop: datetime, found: dict[str, float]) -> None:
    """Divide the time between the first step and the end of an attempt."""
    last = min(max(chapter.stepped or first, first), stop)
    trained, after = (last - first).total_seconds(), (stop - last).total_seconds()
    stall = min(chapter.stall_seconds, trained)
    base = base_of(chapter)
    done = max((chapter.reached or base) - base, 1)
    kept = done if chapter.ended is None else min(max((chapter.survived or 0) - base, 0), done)
    if chapter.began_with is not None:
        kept = max(done - chapter.repeated, 0)
    # The first step of an attempt is in `first_step`.
    steps, useful = done - 1, max(kept - 1, 0)
    work = trained - stall
    share = useful / steps if steps else float(kept > 0)
    found["checkpoint_stall"] += stall
    found["useful"] += work * share
    found["rework"] += work * (1.0 - share)
    found[_after_last_step(chapter, after, work / steps if steps else 0.0)] += after


def base_of(chapter: Chapter) -> int:
    """The step that it began with."""
    if chapter.began_with is not None:
        return chapter.began_with
    return chapter.resumed_from.step if chapter.resumed_from is not None else 0


def _after_last_step(chapter: Chapter, seconds: float, step: float) -> Bucket:
    """The bucket of the time after the last step."""
    if chapter.ended is None:
        return "useful" if seconds <= NORMAL_STEPS * step else "unknown"
    cause = chapter.incident.get("cause")
    if chapter.end != "Incident" or cause in (Cause.PREEMPTED, Cause.TERMINATED):
        return "drain"
    if cause == Cause.INTERRUPTED:  # no operator led it, perhaps for a night: nothing hung
        return "unknown"
    return "rework" if seconds <= NORMAL_STEPS * step else "hang"


STAGES: tuple[RecoveryStage, ...] = get_args(RecoveryStage)
"""In their order."""

OF_REASON: Mapping[str, RecoveryStage] = {"Flushing": "flush", "Attributing": "decide"}
OF_BUCKET: Mapping[Bucket, RecoveryStage] = {
    "drain": "stop",
    "backoff": "decide",
    "load": "load",
}
"""The stage of a wait before the start, by its reason, else by its bucket; else `pods`."""

WHY_WIDTH = 300
"""Characters of the reason why a start was cold."""
DOMINATES, WORTH = 0.3, 2.0
"""Share of a recovery, and seconds, from which imports justify a standby."""


def until_start(view: View, incident: Incident) -> dict[str, float]:
    """The parts up to the start of the next attempt, which is now; in seconds, by stage."""
    chapter = view.status.chapter
    if chapter is None or incident.restart_seconds is None:
        return {}
    found: dict[str, float] = defaultdict(float)
    for reason, seconds in waits(chapter, view.observation.now).items():
        stage = OF_BUCKET.get(WAITS.get(reason, "start"), "pods")
        found[OF_REASON.get(reason, stage)] += seconds
    # Passes measure waits; time that no pass has seen went into deciding.
    found["decide"] += incident.restart_seconds - sum(found.values())
    _no_less_than_nothing(found)
    return _stages({"detect": incident.detect_seconds or 0.0, **found})


def with_first_step(
    view: View, status: TrainRunStatus, agents: Sequence[AgentState]
) -> tuple[Incident, ...]:
    """The incidents, with the duration of the last recovery, set once, with the first step of the
    agents that take part.

    Not if the run was suspended in between: the user wanted that wait.
    """
    record = view.running
    if record is None or not status.incidents:
        return status.incidents
    last = status.incidents[-1]
    ages = [agent.first_step for agent in agents if agent.first_step is not None]
    recovers = last.restart_seconds is not None and last.recovery_seconds is None
    if not recovers or last.attempt >= record.attempt or not ages:
        return status.incidents
    took = (view.observation.now - last.time).total_seconds() - max(ages)
    took = round(max(took, 0.0), 3)
    usual = status.learned.slowest if status.learned is not None else 0.0
    recovered = replace(
        last,
        recovery_seconds=took,
        stages=_with_start(last, agents, max(ages), took=took, usual=usual),
        warm=sum(agent.warm for agent in agents),
        cold=next((agent.cold[:WHY_WIDTH] for agent in agents if agent.cold), ""),
    )
    return (*status.incidents[:-1], recovered)


def advice(view: View, status: TrainRunStatus) -> str:
    """Advice that would have shortened the last recovery; given once, and then kept."""
    if view.config.keeps_standbys:
        return ""
    if status.advice or not status.incidents:
        return status.advice
    stages = status.incidents[-1].stages
    imports, whole = stages.get("import", 0.0), sum(stages.values())
    if imports < max(WORTH, DOMINATES * whole):
        return ""
    size = max((agent.import_bytes for agent in view.heard), default=0)
    cost = f"about {size / 1e6:.0f} MB of memory" if size else "the memory of what is imported"
    return (
        f"imports were {imports:.1f} of the {whole:.1f} s of a recovery: workers.warmStart would "
        f"save most of it and cost {cost} per rank (docs/warm-start.md)"
    )


def _with_start(
    incident: Incident, agents: Sequence[AgentState], age: float, *, took: float, usual: float
) -> dict[str, float]:
    """With the parts after the start, in seconds; `age`: of the first step; `took`: the recovery;
    `usual`: the slowest step of earlier attempts, 0: unknown."""
    if not incident.stages or incident.restart_seconds is None:
        return {}
    spawned = min((a.spawned for a in agents if a.spawned is not None), default=age)
    left = max(took - incident.restart_seconds, 0.0)
    prepared = min(max(spawned - age, 0.0), left)
    imports = min(max((a.imports for a in agents), default=0.0), prepared)
    met = min(max((a.rendezvous for a in agents), default=0.0), prepared)
    loaded = min(max((a.load for a in agents), default=0.0), prepared - max(met, imports))
    first = prepared - max(met, imports) - loaded
    # No step took that long: this is what the script does once, such as compilation.
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
    return _stages(parts)


def _no_less_than_nothing(found: dict[str, float]) -> None:
    """If the clock of another leader was ahead, the largest part gives up the excess."""
    if found["decide"] < 0:
        most = max(found, key=lambda name: found[name])
        found[most] += found["decide"]
        found["decide"] = 0.0


def _stages(parts: Mapping[str, float]) -> dict[str, float]:
    """The stages that took any time, in their order."""
    return {name: round(parts[name], 3) for name in STAGES if round(parts.get(name, 0.0), 3) > 0}
