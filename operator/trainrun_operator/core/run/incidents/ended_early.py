"""Attempts that end with exit code 0 although the training is not done.

Layer: core. A script that finds its old output folder, or too few GPUs, may print a line and
return. Lost steps prove that the training is not done: the attempt has failed. Anything else is
only a doubt.
"""

from __future__ import annotations

from datetime import timedelta

from trainrun.contract.agent_state import ProcessExit
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.incidents.attempt_progress import attempt_seconds, reports
from trainrun_operator.core.run.incidents.losses import Loss, has_stepped
from trainrun_operator.core.run.view import View, max_step

MUCH_SHORTER = 10
"""An attempt this many times shorter than an earlier one has hardly done the remaining work."""


def ended_early(view: View) -> Loss | None:
    """The failure of an attempt whose processes all exited with 0 before its first step.

    None where the training may be done: the script called `finish()`, this attempt reported a step,
    its resume point is the highest step that the run reached, or the user has edited the template
    since, which may ask for fewer steps.
    """
    reached, begun = view.status.reached, _begun_at(view)
    if view.record is None or view.record.template_hash != view.status.stepped_from:
        return None
    if reached is None or reached <= begun or has_stepped(view) or _is_finished(view):
        return None
    ends = _ends(view)
    start = "without a checkpoint" if begun < 0 else f"from the checkpoint of step {begun}"
    return Loss(
        slot=0,
        cause=Cause.ENDED_EARLY,
        rank=ends[0].rank,
        exit_code=0,
        message=f"{all_ended(view)} before a first step. The attempt started {start}, but an "
        f"earlier one had reached step {reached}",
        known_by="the steps that its ranks reported, and the checkpoint that it started from",
        last_lines=ends[0].last_lines,
        age=timedelta(seconds=min(end.age for end in ends)),
        attributed=False,
    )


def doubt(view: View) -> str:
    """Why an attempt that counts as a success may not be done; "" if there is no doubt."""
    if _is_finished(view):
        return ""
    # The highest step of the attempt: a success means that the state of every agent is known.
    highest = max((step for step in map(max_step, view.heard) if step is not None), default=None)
    before = view.status.reached
    if highest is not None:
        if before is None or highest >= before:
            return ""
        return f"This attempt ended at step {highest}, but an earlier one reached step {before}"
    took, longest = attempt_seconds(view), view.status.longest_attempt
    opened = _begun_at(view) >= 0 and any(agent.asked_for_checkpoint for agent in view.heard)
    if longest < MUCH_SHORTER * took or opened:
        return ""
    return (
        f"This attempt reported no step and took {took:.3g} s, but an earlier one took "
        f"{longest:.3g} s"
    )


def last_line(view: View) -> str:
    """The script's last line of output, where nothing else is known of its progress; else ""."""
    lines = _ends(view)[0].last_lines
    if reports(view) or _is_finished(view) or not lines:
        return ""
    return f"No step was reported; the last line of the output is: {lines[-1]}"


def all_ended(view: View) -> str:
    """`all 4 processes ended with exit code 0`."""
    return f"all {len(_ends(view))} processes ended with exit code 0"


def _ends(view: View) -> list[ProcessExit]:
    """How its processes ended, in order of rank; those that printed something come first."""
    ends = [end for agent in view.heard for end in agent.exits]
    return sorted(ends, key=lambda end: (not end.last_lines, end.rank))


def _begun_at(view: View) -> int:
    """The step of the attempt's resume point; -1: it started without a checkpoint."""
    point = view.record.resume_point if view.record is not None else None
    return point.step if point is not None else -1


def _is_finished(view: View) -> bool:
    """Whether its script called `trainrun.finish()`."""
    return any(agent.finished for agent in view.heard)
