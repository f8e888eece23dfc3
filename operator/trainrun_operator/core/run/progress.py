"""How far the training is, for people: what it reports itself, else what its framework posts.

Layer: core. What is posted decides nothing: it stands in a field of its own, which nothing in
`core` reads but this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainrun_operator.api.run.standing import PostedProgress, Progress
from trainrun_operator.core.run.incidents.gains import shows_steps
from trainrun_operator.core.run.view import View, max_step

if TYPE_CHECKING:
    from trainrun.contract.evidence import Posted
    from trainrun_operator.api.run.status import TrainRunStatus

MAX_METRICS = 32
"""Metrics shown in the status."""

METRIC_TEXT = 64
"""Characters of the name of a metric, and of one that is a text."""


def reported(view: View, status: TrainRunStatus) -> Progress:
    """What the script reports."""
    agent = view.speaker
    step = max_step(agent)
    if agent is None or step is None:
        return status.progress
    known = status.progress.time is not None and status.progress.step == step
    time = status.progress.time if known else view.observation.now
    metrics = _shown(agent.metrics)
    return Progress(step=step, metrics=metrics, time=time, stall_seconds=_stall(view))


def posted(view: View, status: TrainRunStatus) -> PostedProgress | None:
    """What its framework posts, as long as nobody knows of a step that was reported; `status` shows
    what was."""
    if shows_steps(status):
        return None
    agent, known = next(iter(view.agents), None), status.posted
    if agent is None or agent.posted is None:
        return known
    told = agent.posted
    new = PostedProgress(
        text=_text(told),
        step=told.step,
        total_steps=told.total,
        percent=told.percent,
        metrics=_shown(told.metrics),
        remaining_seconds=None if told.remaining is None else int(told.remaining),
        time=view.observation.now,
    )
    # Metrics may have been cut from what is known: they make no new time.
    same = known is not None and replace(known, metrics=new.metrics, time=new.time) == new
    return replace(new, time=known.time) if known is not None and same else new


def _text(told: Posted) -> str:
    if told.step is not None:
        return str(told.step) if told.total is None else f"{told.step}/{told.total}"
    if told.percent is not None:
        return f"{told.percent} %"
    return "" if told.total is None else f"-/{told.total}"


def _stall(view: View) -> int:
    agents = [view.joined(worker) for worker in view.roster]
    return int(max((agent.stall for agent in agents if agent is not None), default=0.0))


def _shown(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The first metrics by name, with long texts cut."""
    shown = {}
    for name in sorted(metrics)[:MAX_METRICS]:
        value = metrics[name]
        shown[name[:METRIC_TEXT]] = value[:METRIC_TEXT] if isinstance(value, str) else value
    return shown
