"""Whether attempts get further: incidents in a row without progress, and when they end the run.

Layer: core. Only incidents that look like the script's own count (a cause's row says which). What
an attempt has gained is noted in the write that ends it. Invariants: the number stands in the
status; it goes up by one, where an incident is settled, or to nothing, where an attempt has gained
something; where nobody knows what an attempt has gained it stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.core.run.causes import row_of
from trainrun_operator.core.run.incidents.ledger import KEPT, Verdict
from trainrun_operator.core.run.incidents.uptime import TRAINED, gang_trained, reports
from trainrun_operator.core.run.steps import committed_id
from trainrun_operator.core.run.view import View, counted, max_step

if TYPE_CHECKING:
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.api.run.incident import Gain, Incident
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.config import RunConfig

WARNS_FROM = 3
"""So many incidents in a row without progress are worth a warning."""

FIELD = "failurePolicy.noProgressLimit"


def highest_step(view: View) -> int | None:
    """The highest step that anybody reported in the newest attempt, those who are gone included."""
    seen = [max_step(agent) for agent in (*view.agents, *view.last_words.values())]
    shown, record = view.status.progress, view.record
    if shown.time is not None and record is not None and shown.time > record.time:
        seen.append(shown.step)
    return max((step for step in seen if step is not None), default=None)


def furthest(view: View) -> int | None:
    """The highest step that the run has ever reached, as far as was heard."""
    record = view.record
    point = record.resume_point.step if record is not None and record.resume_point else None
    steps = (view.status.reached, point, highest_step(view))
    return max((step for step in steps if step is not None), default=None)


def advanced(view: View, point: CheckpointId | None = None) -> bool:
    """Whether the newest attempt has committed a step beyond the one that it was handed, as far as
    was heard; or the next one, which is handed `point`, shows that it has.

    Where ranks do not move in lockstep, one that once ran ahead says nothing of what is done.
    """
    record = view.record
    if record is None:
        return False
    handed = record.resume_point.step if record.resume_point is not None else -1
    shown = view.status.checkpoint.id if view.status.checkpoint is not None else None
    known = (committed_id(view), shown, point)
    return any(it.attempt == record.attempt and it.step > handed for it in known if it is not None)


def noted(view: View, status: TrainRunStatus, *, hung: bool = False) -> TrainRunStatus:
    """`status`, which ends the newest attempt (as `hung`), with what that attempt has gained."""
    gain, ending = _gain(view, hung=hung), status.ending
    return replace(
        status,
        ending=None if ending is None else replace(ending, gain=gain),  # None: the run is over
        reached=furthest(view),
        stepped_from=stepped_from(view),
        longest_attempt=max(status.longest_attempt, round(attempt_took(view), 1)),
        without_progress=0 if gain == "Some" else status.without_progress,
    )


def stepped_from(view: View) -> str:
    """Hash of the template of the newest attempt that has reported a step, this one included."""
    record = view.record
    if record is None or highest_step(view) is None:
        return view.status.stepped_from
    return record.template_hash


def attempt_took(view: View) -> float:
    """Seconds since the newest attempt was started; 0 where nobody knows when."""
    record = view.record
    return 0.0 if record is None else (view.observation.now - record.time).total_seconds()


def gained(view: View) -> bool:
    """Whether the newest attempt has gained something, as far as is known."""
    status, ending = view.status, view.status.ending
    if ending is None or ending.attempt != status.attempt:
        return _gain(view) == "Some"
    return ending.gain == "Some" or _told_late(view)


def _gain(view: View, *, hung: bool = False) -> Gain:
    """What the newest attempt has gained, now that it ends."""
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
        heard = any(agent is not None for agent in view.agents) or view.last_words
        return "None" if heard else "Unknown"
    # Who waits for a first step that never comes has not trained, however long it was up.
    return "Some" if gang_trained(view) and not hung else "None"


def in_a_row(view: View, incident: Incident) -> int:
    """Incidents in a row without progress, this one of the newest attempt included."""
    status, ending = view.status, view.status.ending
    gain = ending.gain if ending is not None and ending.attempt == incident.attempt else "Unknown"
    if gain == "Some" or _told_late(view):
        return 0
    counts = gain == "None" and row_of(incident.cause).stands_still
    return status.without_progress + counts


def _told_late(view: View) -> bool:
    """A step, or a checkpoint, that nobody had told when the attempt was given up."""
    highest, before = highest_step(view), view.status.reached
    return advanced(view) or (highest is not None and (before is None or highest > before))


def judge(view: View, incident: Incident) -> Verdict | None:
    """The verdict, where it is one incident too many."""
    limit, number = view.config.no_progress_limit, in_a_row(view, incident)
    if not limit or number < limit or number == view.status.without_progress:
        return None
    return Verdict(
        allowed="Fail",
        reason="NoProgress",
        message=(
            f"{incident.message} ({incident.cause}); {counted(number, 'incident')} in a row "
            f"without {_what(view)}, and spec.{FIELD} is {limit}: "
            f"{row_of(incident.cause).advice}. {KEPT}"
        ),
    )


def warning(view: View, incident: Incident | None) -> str:
    """What to say about incidents in a row without progress; "" where that is not the matter.

    `incident` is the one that is not settled yet.
    """
    status, limit = view.status, view.config.no_progress_limit
    number = status.without_progress if incident is None else in_a_row(view, incident)
    if number < WARNS_FROM or status.finished or (view.running and _gain(view) == "Some"):
        return ""
    if limit > number:
        left = "one more ends" if limit - number == 1 else f"{limit - number} more end"
        bound = f"spec.{FIELD} is {limit}: {left} the run"
    else:
        bound = f"spec.{FIELD} would end the run before its budget does"
    return f"{number} incidents in a row without {_what(view)}; {bound}"


def _what(view: View) -> str:
    furthest_known = furthest(view)
    if furthest_known is None:
        return f"{TRAINED.total_seconds():.0f} s of training"
    return f"a step above {furthest_known} or a newer checkpoint"


def admits(status: TrainRunStatus, config: RunConfig) -> bool:
    """Whether a run that was ended for want of progress may go on."""
    return not config.no_progress_limit or status.without_progress < config.no_progress_limit
