"""What the output of a script shows that reports nothing: its times, its steps.

Layer: core; pure. `trainrun.report()` comes first, then output, then posts. Steps from output are
displayed, drawn, divide the time of a run and show hangs. They may lag and may be wrong, so they
decide about no budget and no limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainrun.contract.agent_state import AgentState
from trainrun.contract.ages import changed
from trainrun.contract.evidence import OutputProgress
from trainrun_operator.api.run.output import OutputSteps
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.core.run.incidents.attempt_progress import few, has_steps, reports
from trainrun_operator.core.run.view import View, once


@once
def output_of(view: View) -> OutputProgress | None:
    """What the output of the newest attempt shows, by the lowest slot; None where the script
    reports, and where no line was recognised."""
    outputs = (agent.output for agent in view.ever_heard if agent.output is not None)
    return None if reports(view) else next(outputs, None)


def moves(view: View) -> bool:
    """The output of the newest attempt has shown a sign of life, and the script reports nothing."""
    output = output_of(view)
    return output is not None and output.began is not None


def by_output(view: View, agents: Iterable[AgentState]) -> tuple[AgentState, ...]:
    """The agents; where output counts, with its signs of life instead of reports."""
    return timed_by_output(agents) if moves(view) else tuple(agents)


def timed_by_output(agents: Iterable[AgentState]) -> tuple[AgentState, ...]:
    """The agents of a script that reports nothing, with the signs of life of its output."""
    return tuple(agent if agent.output is None else _timed(agent, agent.output) for agent in agents)


def _timed(agent: AgentState, output: OutputProgress) -> AgentState:
    return changed(
        agent,
        first_step=output.began,
        stepped=output.moved,
        owes=output.owes,
        slowest=output.slowest,
    )


def output_progress(view: View, status: TrainRunStatus) -> OutputSteps | None:
    """What the status shows of it; None once `status` holds a reported step."""
    if has_steps(status) and reports(view):
        return None
    output, before = output_of(view), status.output
    if output is None:
        return before
    total = "" if output.total is None else f"/{output.total}"
    new = OutputSteps(
        text="" if output.step is None else f"{output.step}{total}",
        step=output.step,
        total_steps=output.total,
        metrics=few(output.metrics),
        form=output.form,
        rank=output.rank,
        line=output.line,
        reached=before.reached if before is not None else 0,
        time=view.observation.now,
    )
    same = before is not None and replace(before, metrics=new.metrics, time=new.time) == new
    return replace(new, time=before.time) if before is not None and same else new


def from_then_on(before: OutputSteps | None) -> OutputSteps | None:
    """What is left of it when the next attempt starts: how far the run came."""
    if before is None:
        return None
    reached = max(before.reached, before.step or 0)
    return replace(before, text="", step=None, metrics={}, reached=reached)
