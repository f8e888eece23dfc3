"""Attempts that end with exit code 0 although the training is not done.

Layer: core. A script that finds its old output folder, or too few GPUs, may print a line and
return. Lost steps prove that the training is not done: the attempt has failed. All else is a doubt.
"""

from __future__ import annotations

from datetime import timedelta

from trainrun.contract.agent_state import ProcessExit
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.incidents.attempt_progress import attempt_seconds, reports
from trainrun_operator.core.run.incidents.losses import Loss, has_stepped
from trainrun_operator.core.run.view import View, max_step

MUCH_SHORTER = 10
"""An attempt that took a tenth of an earlier one's time has hardly done the rest of the work."""


def ended_early(view: View) -> Loss | None:
    """The failure of an attempt whose processes have all ended well, before its first step.

    None where all may be done: the script called `finish()`, this attempt reported a step, it was
    handed a checkpoint of the highest step that the run has reached, or its user has edited the
    template since, which may ask for fewer steps.
    """
    reached, begun = view.status.reached, _begun_at(view)
    if view.record is None or view.record.template_hash != view.status.stepped_from:
        return None
    if reached is None or reached <= begun or has_stepped(view) or _is_finished(view):
        return None
    ends = _ends(view)
    source = "nothing" if begun < 0 else f"the checkpoint of step {begun}"
    return Loss(
        slot=0,
        cause=Cause.ENDED_EARLY,
        rank=ends[0].rank,
        exit_code=0,
        message=f"{all_ended(view)} before a first step. It started from {source}, and an earlier "
        f"attempt had reached step {reached}",
        known_by="the steps that its ranks have reported, and the checkpoint that it started from",
        last_lines=ends[0].last_lines,
        age=timedelta(seconds=min(end.age for end in ends)),
        attributed=False,
    )


def doubt(view: View) -> str:
    """Why the training may not be done, of an attempt that counts as a success; "": nothing."""
    if _is_finished(view):
        return ""
    # The highest step that a process of the attempt has reported, all of which are heard.
    highest = max((step for step in map(max_step, view.heard) if step is not None), default=None)
    before = view.status.reached
    if highest is not None:
        if before is None or highest >= before:
            return ""
        return f"This attempt ended at step {highest}, an earlier one had reached step {before}"
    took, longest = attempt_seconds(view), view.status.longest_attempt
    opened = _begun_at(view) >= 0 and any(agent.asked_for_checkpoint for agent in view.heard)
    if longest < MUCH_SHORTER * took or opened:
        return ""
    return f"This attempt reported no step and took {took:.3g} s, an earlier one {longest:.3g} s"


def last_line(view: View) -> str:
    """What the script printed last, where that is all that is known of it; "": nothing."""
    lines = _ends(view)[0].last_lines
    if reports(view) or _is_finished(view) or not lines:
        return ""
    return f"No step was reported; the last line of the output is: {lines[-1]}"


def all_ended(view: View) -> str:
    """`all 4 processes ended with exit code 0`."""
    return f"all {len(_ends(view))} processes ended with exit code 0"


def _ends(view: View) -> list[ProcessExit]:
    """How its processes ended: those that printed something first, each in the order of ranks."""
    ends = [end for agent in view.heard for end in agent.exits]
    return sorted(ends, key=lambda end: (not end.last_lines, end.rank))


def _begun_at(view: View) -> int:
    """The step of the checkpoint that the attempt was handed; -1: it began from nothing."""
    point = view.record.resume_point if view.record is not None else None
    return point.step if point is not None else -1


def _is_finished(view: View) -> bool:
    """Its script called `trainrun.finish()`."""
    return any(agent.finished for agent in view.heard)
