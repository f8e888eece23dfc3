"""Progress of the training: what an attempt gained, and what the status shows.

Layer: core. Of a script that never calls `trainrun.report()` and resumes from a folder of its own,
only the uptime of its processes is visible. Once a step of the run is known, only steps count as
progress. The write that ends an attempt records what the attempt gained. The status shows what the
training reports, else what its framework posts. Posted progress decides nothing: it has a field of
its own, which only this module reads in `core`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from trainrun.contract.agent_state import AgentState
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import Posted
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Gain, PostedProgress, Progress
from trainrun_operator.core.run.steps import committed_id, newest_staged
from trainrun_operator.core.run.view import View, max_step

TRAINED = timedelta(minutes=1)
"""A process that reports nothing has trained once it has been up this long."""
MAX_METRICS = 32
"""Metrics shown in the status."""
METRIC_TEXT = 64
"""Longest name of a metric, and longest text value, in characters."""


def highest_step(view: View) -> int | None:
    """The highest step that any agent of the newest attempt reported, lost agents included."""
    steps = [max_step(agent) for agent in view.ever_heard]
    progress, record = view.status.progress, view.record
    if progress.time is not None and record is not None and progress.time > record.time:
        steps.append(progress.step)
    return max((step for step in steps if step is not None), default=None)


def furthest(view: View) -> int | None:
    """The highest step that the run has ever reached, as far as agents reported it."""
    record = view.record
    point = record.resume_point.step if record is not None and record.resume_point else None
    steps = (view.status.reached, point, highest_step(view))
    return max((step for step in steps if step is not None), default=None)


def advanced(view: View, point: CheckpointId | None = None) -> bool:
    """Whether the newest attempt is known to have committed a step beyond its resume point.

    The next attempt's resume point `point` may show it, too. Steps that ranks reported do not count
    here: without lockstep, one rank may have run ahead of what is done.
    """
    record = view.record
    if record is None:
        return False
    handed = record.resume_point.step if record.resume_point is not None else -1
    committed = view.status.checkpoint.id if view.status.checkpoint is not None else None
    checkpoints = (committed_id(view), committed, point)
    return any(
        checkpoint.attempt == record.attempt and checkpoint.step > handed
        for checkpoint in checkpoints
        if checkpoint is not None
    )


def noted(view: View, status: TrainRunStatus, *, hung: bool = False) -> TrainRunStatus:
    """`status`, which ends the newest attempt (`hung`: as a hang), with what the attempt gained."""
    gain, ending = gain_of(view, hung=hung), status.ending
    return replace(
        status,
        ending=None if ending is None else replace(ending, gain=gain),  # None: the run is over
        reached=furthest(view),
        stepped_from=stepped_from(view),
        longest_attempt=max(status.longest_attempt, round(attempt_seconds(view), 1)),
        without_progress=0 if gain == "Some" else status.without_progress,
    )


def stepped_from(view: View) -> str:
    """Template hash of the newest attempt that reported a step, the current one included."""
    record = view.record
    if record is None or highest_step(view) is None:
        return view.status.stepped_from
    return record.template_hash


def attempt_seconds(view: View) -> float:
    """Seconds since the newest attempt was started; 0 where the time is unknown."""
    record = view.record
    return 0.0 if record is None else (view.observation.now - record.time).total_seconds()


def gained(view: View) -> bool:
    """Whether the newest attempt is known to have gained something."""
    status, ending = view.status, view.status.ending
    if ending is None or ending.attempt != status.attempt:
        return gain_of(view) == "Some"
    return ending.gain == "Some" or reported_late(view)


def gain_of(view: View, *, hung: bool = False) -> Gain:
    """What the newest attempt gained, now that it ends."""
    record, highest = view.record, highest_step(view)
    if record is None:
        return "Unknown"
    if advanced(view):
        return "Some"
    if highest is not None:
        point = record.resume_point.step if record.resume_point else -1
        before = -1 if view.status.reached is None else view.status.reached
        return "Some" if highest > max(point, before) else "None"
    if reports(view):
        return "None" if view.ever_heard else "Unknown"
    # A gang that never reached its first step has not trained, however long it was up.
    return "Some" if gang_trained(view) and not hung else "None"


def reported_late(view: View) -> bool:
    """Whether a step or a checkpoint was reported only after the attempt had been given up."""
    highest, before = highest_step(view), view.status.reached
    return advanced(view) or (highest is not None and (before is None or highest > before))


def process_trained(view: View, agent: AgentState, *, ended: float) -> bool:
    """Whether a process of this agent had trained when it ended, `ended` seconds ago."""
    up = (agent.spawned or 0.0) - ended
    return timedelta(seconds=up) >= TRAINED and not reports(view)


def gang_trained(view: View) -> bool:
    """Whether the newest attempt had trained when its first process failed, or has until now.

    If none of its agents is left, the time since its start record counts.
    """
    record = view.record
    if record is None or reports(view):
        return False
    since_start = view.observation.now - record.time
    return min(map(uptime, view.ever_heard), default=since_start) >= TRAINED


def uptime(agent: AgentState) -> timedelta:
    """How long its processes had been up when the first of them failed; else until now."""
    failed = (end.age for end in agent.exits if end.failed)
    return timedelta(seconds=(agent.spawned or 0.0) - max(failed, default=0.0))


def has_steps(status: TrainRunStatus) -> bool:
    """Whether the status holds a step or a checkpoint that the script itself reported. Where its
    output counts, checkpoints come from its folder."""
    if status.progress.step is not None or status.output is not None:
        return status.progress.step is not None
    return (
        status.checkpoint is not None
        or status.reached is not None
        or any(incident.lost_steps is not None for incident in status.incidents)
    )


def reports(view: View) -> bool:
    """Whether a step or a checkpoint is known that the script of this run reported."""
    record, status = view.record, view.status
    steps = any(max_step(agent) is not None for agent in view.heard)
    if view.config.folder is not None:
        return steps or status.progress.step is not None
    return steps or has_steps(status) or (record is not None and record.resume_point is not None)


def reported_progress(view: View, status: TrainRunStatus) -> Progress:
    """The progress that the script reports, for the status."""
    agent = view.speaker
    step = max_step(agent)
    if agent is None or step is None:
        return status.progress
    unchanged = status.progress.time is not None and status.progress.step == step
    time = status.progress.time if unchanged else view.observation.now
    stall = int(max((agent.stall for agent in view.heard), default=0.0))
    return Progress(
        step=step,
        metrics=few(agent.metrics),
        time=time,
        stall_seconds=stall,
        staged=newest_staged(view) if view.config.upload_every is not None else None,
    )


def posted_progress(view: View, status: TrainRunStatus) -> PostedProgress | None:
    """The progress that its framework posts; None once `status` holds a better one."""
    if (has_steps(status) and reports(view)) or status.output is not None:
        return None
    agent, before = next(iter(view.agents), None), status.posted
    if agent is None or agent.posted is None:
        return before
    posts = agent.posted
    new = PostedProgress(
        text=_text(posts),
        step=posts.step,
        total_steps=posts.total,
        percent=posts.percent,
        metrics=few(posts.metrics),
        remaining_seconds=None if posts.remaining is None else int(posts.remaining),
        time=view.observation.now,
    )
    # The status may have lost its metrics to save room: a difference there changes no time.
    same = before is not None and replace(before, metrics=new.metrics, time=new.time) == new
    return replace(new, time=before.time) if before is not None and same else new


def _text(posts: Posted) -> str:
    if posts.step is not None:
        return str(posts.step) if posts.total is None else f"{posts.step}/{posts.total}"
    if posts.percent is not None:
        return f"{posts.percent} %"
    return "" if posts.total is None else f"-/{posts.total}"


def few(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The first MAX_METRICS metrics by name, with long texts cut."""
    cut = {}
    for name in sorted(metrics)[:MAX_METRICS]:
        value = metrics[name]
        cut[name[:METRIC_TEXT]] = value[:METRIC_TEXT] if isinstance(value, str) else value
    return cut
