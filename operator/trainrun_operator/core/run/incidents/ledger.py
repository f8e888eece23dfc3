"""The consequences of an incident: the budget it is charged to, and whether the run may restart.

Layer: core. Read after `attribution`, from top to bottom. In order of precedence:

1. A rule of the failure policy, or an exception by which the script decides: they were written for
   this case. The status may have cut the text that a rule matched: then its decision is kept.
2. The budget of the cause: a limit that the user has set, for all incidents or those in a window.
3. Incidents in a row without progress: the budget has room, but the next attempt would end the same
   way. Only incidents that look like the script's own count (the row of a cause says which).

If none of them gives a verdict, the run restarts. With failurePolicy.window the times of the newest
incidents of each budget are stored next to the counters. Their number is bounded, and so is each
limit then: more incidents than are stored could not be counted.

Invariants: counters never go down; an incident is charged once, when it is settled, in the write
that ends its provisional state (start record, verdict, suspension). Only the times at which
incidents were written count, so a late pass decides the same. The count without progress grows by
one when an incident is settled, and is reset when an attempt gains something; it stays where the
gain of an attempt is unknown.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from trainrun._common.text import shortened
from trainrun_operator.api.run.edits import ONCE_RAISED
from trainrun_operator.api.run.rules import FailureRule, compiled
from trainrun_operator.api.run.spec import MAX_IN_WINDOW
from trainrun_operator.api.run.status import MAX_INCIDENTS, TrainRunStatus
from trainrun_operator.api.run.status_parts import BudgetName, Failures, Incident
from trainrun_operator.core.run.causes import (
    BUDGETS,
    SIGNAL_NAMES,
    Budget,
    Explains,
    advice_on,
    budget_of,
    row_of,
    signal_of,
)
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.incidents.attempt_progress import (
    TRAINED,
    furthest,
    gain_of,
    reported_late,
)
from trainrun_operator.core.run.view import View, counted

JITTER = 0.2
"""Largest part added to a backoff, so that runs that failed together spread out."""

LINES_FOR = 2
"""How many of the newest settled incidents keep their last lines; the status must stay small."""

UNCOUNTED = "RestartUncounted"
"""An action that a rule, or the script, may ask for; all such ends share one count."""

SHORT_MESSAGE = 200
"""Longest message of an older incident, in characters."""

RESUMES_FROM_CHECKPOINT = (
    f". Committed checkpoints are kept: the run resumes from them {ONCE_RAISED}"
)
RESUMES = f"; the run resumes {ONCE_RAISED}"
"""The ends of a message about a limit that has ended a run: with a checkpoint, and without a known
one."""
KEPT_FOR_OTHERS = ". Committed checkpoints are kept; a run on the same storage continues from them"

UNCOUNTED_TRIES = 5
"""Restarts in a row without a new step that a rule, or the script, may leave uncounted."""

CUT = "…"
"""Marks where the status has cut something of an incident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why the run may not start again after an incident."""

    reason: str
    message: str
    of_limit: bool = True
    """Whether a larger limit lets the run resume."""

    def full_message(self, *, saved: bool) -> str:
        """The message, and what happens to the run; `saved`: it is known to have a checkpoint."""
        if self.of_limit:
            return self.message + (RESUMES_FROM_CHECKPOINT if saved else RESUMES)
        return self.message + (KEPT_FOR_OTHERS if saved else "")


def decided(incident: Incident, rules: tuple[FailureRule, ...]) -> Incident:
    """The incident with the action of the first rule that matches, else that of its cause."""
    if incident.rule and _is_cut(incident):
        return incident
    for number, rule in enumerate(rules):
        if _matches(rule, incident):
            name = f" ({rule.name})" if rule.name else ""
            return replace(incident, action=rule.action, rule=f"rules[{number}]{name}")
    action = row_of(incident.cause).action
    return replace(incident, action=action if action != "Restart" else "", rule="")


def _is_cut(incident: Incident) -> bool:
    return incident.message.endswith(CUT) or CUT in incident.exception


def _matches(rule: FailureRule, incident: Incident) -> bool:
    declared = row_of(incident.cause).explains is Explains.SCRIPT
    if declared and not (rule.causes or rule.exceptions):
        return False  # the decision of a script outranks rules that were not written for it
    return (
        (not rule.exit_codes or incident.exit_code in rule.exit_codes)
        and (not rule.signals or SIGNAL_NAMES.get(signal_of(incident) or 0) in rule.signals)
        and (not rule.exceptions or _raised(rule, incident))
        and (not rule.causes or incident.cause in rule.causes)
        and (not rule.ranks or incident.rank in rule.ranks)
        and (not rule.containers or incident.container in rule.containers)
        and (not rule.message_pattern or compiled(rule.message_pattern)(incident.message))
    )


def _raised(rule: FailureRule, incident: Incident) -> bool:
    kinds = set(incident.exception)
    kinds |= {kind.rpartition(".")[2] for kind in kinds}
    return not kinds.isdisjoint(rule.exceptions)


def charged(status: TrainRunStatus, incident: Incident, config: RunConfig) -> Incident:
    """The incident with its budget, and the rule that decides about it, by the current
    failurePolicy."""
    incident = decided(incident, config.rules)
    in_a_row = _in_a_row(status, _free_end(incident))
    budget = budget_of(incident.cause, config.limits, in_a_row=in_a_row)
    if incident.action == UNCOUNTED and in_a_row <= UNCOUNTED_TRIES:
        budget = "none"
    return replace(incident, budget=budget)


def _free_end(incident: Incident) -> str:
    """The name under which its free ends in a row are counted."""
    return UNCOUNTED if incident.action == UNCOUNTED else incident.cause


def _in_a_row(status: TrainRunStatus, cause: str) -> int:
    """Fruitless attempts in a row that ended for this free cause, the current one included.

    An end for another free cause does not reset the count: two causes could alternate without end.
    """
    return status.fruitless and status.free_ends.get(cause, 0) + 1


def free_ends_after(
    status: TrainRunStatus, incident: Incident, config: RunConfig
) -> dict[str, int]:
    """The counts of free ends once the incident is settled."""
    row, incident = row_of(incident.cause), decided(incident, config.rules)
    if (row.free_tries or incident.action == UNCOUNTED) and status.fruitless:
        name = _free_end(incident)
        return {**status.free_ends, name: _in_a_row(status, name)}
    return {} if row.slows_down else status.free_ends


def judge(status: TrainRunStatus, incident: Incident, config: RunConfig) -> Verdict | None:
    """The verdict if the incident exceeds its budget, or a rule fails the run; else None."""
    incident = charged(status, incident, config)
    if incident.action == "FailRun":
        return _failing(incident)
    name, at = incident.budget, incident.time
    if name == "none" or has_room(status, name, config, at=at):
        return None
    budget, limit = BUDGETS[name], config.limits[name]
    used, advice = used_of(status, name, config, at=at), _advice(incident)
    return Verdict(
        reason=exceeded(budget),
        message=(
            f"{incident.message} ({incident.cause}); spec.failurePolicy.{budget.field} is {limit}"
            f"{_within(config)} and {used} {'was' if used == 1 else 'were'} used before: {advice}"
        ),
    )


def _advice(incident: Incident) -> str:
    return advice_on(incident.cause, rank=incident.rank, exit_code=incident.exit_code)


def exceeded(budget: Budget) -> str:
    """The reason with which the run fails: `MaxFailuresExceeded`."""
    return f"{budget.field[0].upper()}{budget.field[1:]}Exceeded"


def has_room(status: TrainRunStatus, name: BudgetName, config: RunConfig, *, at: datetime) -> bool:
    """Whether one more incident at this moment fits into the budget."""
    limit = config.limits[name]
    return limit == -1 or used_of(status, name, config, at=at) < limit


def admits(status: TrainRunStatus, name: BudgetName, config: RunConfig) -> bool:
    """Whether all that was charged to the budget fits into it, the last incident included."""
    limit, last = config.limits.get(name, 0), status.incidents[-1:]
    if limit == -1 or not last:
        return limit == -1
    return used_of(status, name, config, at=last[0].time) <= limit


def used_of(status: TrainRunStatus, name: BudgetName, config: RunConfig, *, at: datetime) -> int:
    """How many settled incidents count towards the limit of the budget at this moment."""
    found = recent(status, name, config, at=at)
    return BUDGETS[name].used(status.failures) if found is None else found


def _within(config: RunConfig) -> str:
    """The words that name the window; "" where there is none."""
    if config.window is None:
        return ""
    return f" within {config.window.total_seconds():.0f} s (spec.failurePolicy.window)"


def _failing(incident: Incident) -> Verdict:
    """The verdict of a rule, or of the script itself."""
    if not incident.rule:
        message = f"{incident.message}: {_advice(incident)}"
        return Verdict(reason=incident.cause, message=message, of_limit=False)
    what = f"{incident.message} ({incident.cause})"
    message = f"{what}; spec.failurePolicy.{incident.rule} says FailRun"
    return Verdict(reason="FailedByRule", message=message, of_limit=False)


def settle(
    status: TrainRunStatus, incident: Incident, config: RunConfig
) -> tuple[Failures, tuple[Incident, ...]]:
    """Charge the incident: returns the new budgets (`tally` makes their text), and the list of
    incidents that ends with it."""
    incident = charged(status, incident, config)
    failures, counted = status.failures, incident.budget != "none"
    if counted:
        failures = BUDGETS[incident.budget].charged(failures)
    final = replace(incident, counted=counted)
    return failures, _newest((*status.incidents, final))


def _newest(incidents: tuple[Incident, ...]) -> tuple[Incident, ...]:
    """The newest incidents; the older of them without their largest fields."""
    newest = incidents[-MAX_INCIDENTS:]
    old, new = newest[:-LINES_FOR], newest[-LINES_FOR:]
    return (*(_short(incident) for incident in old), *new)


def _short(incident: Incident) -> Incident:
    message = shortened(incident.message, SHORT_MESSAGE)
    return replace(
        incident, last_lines=(), message=message, exception=incident.exception[:1], known_by=""
    )


def tally(
    status: TrainRunStatus, config: RunConfig, *, pending: Incident | None, at: datetime
) -> Failures:
    """The budgets with their text: what counts at this moment, a `pending` (unsettled) incident
    included."""
    used = used_of(status, "failures", config, at=at)
    used += pending is not None and pending.budget == "failures"
    limit = config.limits["failures"]
    shown = "no limit" if limit == -1 else str(limit)
    return replace(status.failures, limit=limit, text=f"{used}/{shown}")


def longest_backoff(config: RunConfig) -> timedelta:
    """Upper bound of every backoff."""
    return config.backoff_max * (1 + JITTER)


def backoff(config: RunConfig, *, fruitless: int, attempt: int) -> timedelta:
    """How long to wait before the attempt after `attempt`: 0, 0, then initial * factor^k up to max.

    `fruitless` counts attempts in a row that ended without a new step, this one included: a run
    that makes progress restarts at once. The jitter depends only on run and attempt, so every
    operator decides the same.
    """
    if fruitless < 2:
        return timedelta(0)
    growth = config.backoff_factor ** min(fruitless - 2, 64)
    plain = min(config.backoff_initial.total_seconds() * growth, config.backoff_max.total_seconds())
    spread = zlib.crc32(f"{config.uid}/{attempt}".encode()) / 0xFFFFFFFF
    return timedelta(seconds=plain * (1 + JITTER * spread))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DIGITS = 13
"""Hexadecimal digits of a moment, in microseconds since 1970: enough until the year 2112. Moments
are as exact as the times of incidents: cut to a second, one would leave the window too early."""

MOMENTS_KEPT = (MAX_IN_WINDOW + 1) * DIGITS
"""Characters that a budget's moments take: one moment more than any limit allows."""


def remembered(moments: Mapping[str, str], incident: Incident) -> dict[str, str]:
    """The moments of all budgets, with that of an incident that was charged."""
    text = moments.get(incident.budget, "")
    now = f"{_microseconds(incident.time):0{DIGITS}x}"
    return {**moments, incident.budget: f"{text}{now}"[-MOMENTS_KEPT:]}


def recent(
    status: TrainRunStatus, name: BudgetName, config: RunConfig, *, at: datetime
) -> int | None:
    """Incidents charged to the budget in the window before this moment; None: no window is set."""
    if config.window is None:
        return None
    begin = _microseconds(at - config.window)
    text = status.moments.get(name, "")
    moments = (int(text[i : i + DIGITS], 16) for i in range(0, len(text), DIGITS))
    return sum(begin < moment for moment in moments)  # includes those of a clock that was ahead


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


WARN_FROM = 3
"""Incidents in a row without progress from which on there is a warning."""

NO_PROGRESS_LIMIT = "failurePolicy.noProgressLimit"


def in_a_row(view: View, incident: Incident) -> int:
    """Incidents in a row without progress, this one of the newest attempt included."""
    status, ending = view.status, view.status.ending
    if reported_late(view):  # a report in time has reset the count when the attempt ended
        return 0
    gained_nothing = ending is not None and ending.gain == "None"
    return status.without_progress + (gained_nothing and row_of(incident.cause).stands_still)


def too_many(view: View, incident: Incident) -> Verdict | None:
    """The verdict if this is one incident too many; else None."""
    limit, number = view.config.no_progress_limit, in_a_row(view, incident)
    if not limit or number < limit or number == view.status.without_progress:
        return None
    return Verdict(
        reason="NoProgress",
        message=(
            f"{incident.message} ({incident.cause}); {counted(number, 'incident')} in a row "
            f"without {_what(view)}, and spec.{NO_PROGRESS_LIMIT} is {limit}: "
            f"{_advice(incident)}"
        ),
    )


def no_progress(view: View, incident: Incident | None) -> str:
    """The warning about incidents in a row without progress; "" where there is none.

    `incident` is the one that is not settled yet.
    """
    status, limit = view.status, view.config.no_progress_limit
    number = status.without_progress if incident is None else in_a_row(view, incident)
    if number < WARN_FROM or status.finished or (view.running and gain_of(view) == "Some"):
        return ""
    if limit:
        left = "one more ends" if limit - number <= 1 else f"{limit - number} more end"
        bound = f"spec.{NO_PROGRESS_LIMIT} is {limit}: {left} the run"
    else:
        bound = f"spec.{NO_PROGRESS_LIMIT} would end the run before its budget does"
    return f"{number} incidents in a row without {_what(view)}; {bound}"


def _what(view: View) -> str:
    furthest_known = furthest(view)
    if furthest_known is None:
        return f"{TRAINED.total_seconds():.0f} s of training"
    return f"a step above {furthest_known} or a newer checkpoint"


def admits_more(status: TrainRunStatus, config: RunConfig) -> bool:
    """Whether a run that ended for lack of progress may resume."""
    return not config.no_progress_limit or status.without_progress < config.no_progress_limit
