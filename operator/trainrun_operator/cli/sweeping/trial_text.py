"""Texts about a sweep and its trials, shared by lines, tables, reports and JSON.

Layer: cli; pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainrun.sweep.records import TrialState
from trainrun.sweep.search import Objective, Scalar
from trainrun.sweep.view import SweepView, TrialView, standing
from trainrun_operator.api.sweep.status import EndedTrial, TrainSweepStatus
from trainrun_operator.cli import formatting
from trainrun_operator.core.sweep.config import as_text

LONGEST_TEXT = 20
"""Characters of a parameter's value in a table."""
MOST_PARAMETERS = 6
"""Parameters that a sentence lists."""
MOST_CHOICES = 4
"""Choices of a parameter that a sentence lists."""
STATES: tuple[TrialState, ...] = ("Succeeded", "Errored", "Diverged", "Stopped", "Skipped", "Open")
"""In the order in which counts list them."""


def number(value: float | None) -> str:
    """A value of the objective; a dash if there is none."""
    return "-" if value is None else f"{value:.6g}"


def value_at(objective: Objective, value: float, step: int) -> str:
    """`loss 0.25 at step 7`."""
    return f"{objective.metric} {number(value)} at step {step}"


def first_line(text: str) -> str:
    """The first line of a message; empty if there is none."""
    return next(iter(text.splitlines()), "")


def parameters(params: Mapping[str, Scalar], *, exact: bool = False) -> str:
    """`lr=0.000367 optimizer=sgd`; `exact`: with all digits, to copy into a script."""
    return " ".join(f"{name}={_parameter(value, exact=exact)}" for name, value in params.items())


def _parameter(value: Scalar, *, exact: bool) -> str:
    if isinstance(value, float):
        return repr(value) if exact else f"{value:.4g}"
    text = as_text(value)
    if not text.isprintable():  # a newline would break a table, and a tab could not be copied
        text = json.dumps(text, ensure_ascii=False)
    return text if exact else formatting.shortened(text, LONGEST_TEXT)


def outcome(trial: TrialView, objective: Objective) -> str:
    """The result of an ended trial: its value, why it ended, restarts."""
    at = "" if trial.value is None else value_at(objective, trial.value, trial.step)
    return _outcome(at, trial)


def outcome_in_status(trial: EndedTrial, objective: Objective) -> str:
    """As `outcome`, from a status, which has no steps."""
    at = f"{objective.metric} {number(float(trial.value))}" if trial.value else ""
    return _outcome(at, trial)


def _outcome(at: str, trial: TrialView | EndedTrial) -> str:
    why = f"{trial.reason}: {trial.message}" if trial.message else ""
    again = formatting.counted(trial.restarts, "restart") if trial.restarts else ""
    parts = (at, first_line(why), again)
    return "; ".join(part for part in parts if part) or trial.reason


def summary(
    name: str, status: TrainSweepStatus, objective: Objective, *, continue_with: str
) -> Iterator[str]:
    """The last lines of `trainrun run`."""
    yield from facts(name, status, objective)
    for trial in status.last_ended:
        if trial.state == "Errored":
            why = first_line(trial.message) or trial.reason
            yield f"  errored      trial {trial.trial}: {why}"
    if status.phase not in ("Succeeded", "Failed"):
        yield f"  continue with: {continue_with}"


def facts(name: str, status: TrainSweepStatus, objective: Objective) -> Iterator[str]:
    """A sweep's phase, its trials by state, its running time, the best trial."""
    yield f"TrainSweep {name}: {status.phase} ({status.reason}): {status.message}"
    states = map(str.lower, STATES)
    counts = formatting.counts({state: getattr(status.trials, state) for state in states})
    yield f"  trials       {status.trials.text or '0'} ended: {counts}"
    if status.active_seconds:
        active = formatting.seconds(float(status.active_seconds))
        yield f"  time         {active} with trials at work"
    best = status.best
    if best is not None:
        value = value_at(objective, float(best.value), best.step)
        yield f"  best         trial {best.trial}: {value}"
        if best.params:
            yield f"               {parameters(best.params, exact=True)}"


def searched(view: SweepView, goal: Objective) -> str:
    """A sentence: the parameters searched, the objective, the sampler."""
    spec = json.loads(view.sessions[0].spec)
    space = [_range(parameter) for parameter in spec["space"]]
    if len(space) > MOST_PARAMETERS:
        space = [*space[:MOST_PARAMETERS], f"{len(space) - MOST_PARAMETERS} more"]
    extreme = "smallest" if goal.goal == "minimize" else "greatest"
    which = " at any step" if goal.value == "best" else ""
    sampler = spec["sampler"]["name"]
    searched = formatting.joined(space)
    return f"It searched {searched} for the {extreme} {goal.metric}{which}, by {sampler}."


def _range(parameter: Mapping[str, Any]) -> str:
    name = str(parameter["name"])
    for kind in ("float", "int"):
        if kind in parameter:
            domain = parameter[kind]
            log = " (log)" if domain.get("log") else ""
            return f"{name} from {domain['low']:.6g} to {domain['high']:.6g}{log}"
    choices = [formatting.shortened(as_text(value), LONGEST_TEXT) for value in parameter["choice"]]
    if len(choices) > MOST_CHOICES:
        return f"{name} among {len(choices)} values"
    return f"{name} ({', '.join(choices)})"


def cost(view: SweepView) -> str:
    """A sentence: time with trials at work, sessions, trials by state, restarts."""
    states = {state.lower(): view.count(state) for state in STATES}
    sessions = formatting.counted(len(view.sessions), "session")
    restarted = f"; {formatting.counted(again, 'restart')}" if (again := restarts(view)) else ""
    return (
        f"It took {formatting.seconds(view.active)} with trials at work, in {sessions}: "
        f"{formatting.counted(view.asked, 'trial')}, {formatting.counts(states)}{restarted}."
    )


def restarts(view: SweepView) -> int:
    """Restarts of all ended trials, each counted since its last opening."""
    return sum(trial.restarts for trial in view.trials.values())


def status_or_not_led(status: TrainSweepStatus) -> TrainSweepStatus:
    """The status of an object in a cluster; reason NotLed if no operator has written one."""
    if status.reason:
        return status
    return replace(status, reason="NotLed", message="no operator has looked at it yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A trial's current state, for tables and JSON."""

    trial: int
    state: str
    """The state in the log; for an open trial led by this machine `Running`, `Saving`, `Saved`, or
    `Ending` until its end is in the log."""
    params: Mapping[str, Scalar]
    value: float | None
    step: int | None
    restarts: int
    remark: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """As JSON fields. A value that JSON lacks is text: `"nan"`."""
        value = self.value
        odd = value is not None and not math.isfinite(value)
        return {**asdict(self), "params": dict(self.params), "value": str(value) if odd else value}


def heads(objective: Objective) -> tuple[str, ...]:
    """The column heads of a table of trials."""
    return ("trial", "state", objective.metric, "step", "restarts", "parameters")


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a row, in the order of `heads`."""
    step = "-" if row.step is None else str(row.step)
    params = parameters(row.params)
    return str(row.trial), row.state, number(row.value), step, str(row.restarts), params


def trial_rows(view: SweepView, objective: Objective) -> tuple[Row, ...]:
    """The rows of all trials, by number."""
    return tuple(trial_row(trial, objective) for trial in view.trials.values())


def trial_row(trial: TrialView, objective: Objective) -> Row:
    """The row of one trial, from the log."""
    own = standing(trial, objective)
    return Row(
        trial=trial.number,
        state=trial.state,
        params=trial.params,
        value=None if own is None else own.value,
        step=None if own is None else own.step,
        restarts=trial.restarts,
        remark=_remark(trial),
    )


def _remark(trial: TrialView) -> str:
    if trial.state in ("Open", "Succeeded"):
        return "" if trial.duplicate_of is None else f"same as trial {trial.duplicate_of}"
    return first_line(f"{trial.reason}: {trial.message}" if trial.message else trial.reason)
