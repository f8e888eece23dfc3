"""One incident out of all losses of an attempt: the best explanation and its budget.

Layer: core. Order of explanations: what the world announced or knows (driver gone, notice, node),
out of memory, signal, exception, silence, exception that looks like a broken collective; among
equals the one that happened first, then the lowest slot.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.api.status import BudgetName, Incident
from trainrun_operator.core.causes import CAUSES, Cause
from trainrun_operator.core.losses import Loss, losses_of
from trainrun_operator.core.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from trainrun_operator.core.config import RunConfig

WORLD_CAUSES = (
    Cause.INTERRUPTED,
    Cause.PREEMPTED,
    Cause.EVICTED,
    Cause.NODE_LOST,
    Cause.OUT_OF_MEMORY,
)
"""Causes that explain every other loss of the same attempt, best first."""

HIGHEST_SIGNAL = 64
"""Linux has signals 1 to 64; an exit code of 128 + one of them tells that it ended the process."""

LINES_TEXT = 2000
"""Characters that the last lines of an incident take together, at most."""


NODE_EVIDENCE = timedelta(seconds=30)
"""Besides the heartbeat timeout: a node that is dead is known to be so by then."""


def weight(*, cause: str, signalled: bool, silent: bool, collateral: bool) -> int:
    """How well a loss explains an incident; lower is better."""
    for place, known in enumerate(WORLD_CAUSES):
        if cause == known:
            return place
    if collateral:
        return 20
    if silent:
        return 15
    return 10 if signalled else 12


def best(losses: Iterable[Loss]) -> Loss | None:
    """The loss that explains the incident best."""
    return min(losses, key=lambda loss: (_weight(loss), -loss.age, loss.slot), default=None)


def _weight(loss: Loss) -> int:
    silent = loss.cause is Cause.UNKNOWN and loss.exit_code is None
    return weight(
        cause=loss.cause,
        signalled=loss.signalled,
        silent=silent,
        collateral=loss.collateral or loss.cause is Cause.RENDEZVOUS_FAILED,
    )


def incident_of(loss: Loss, *, attempt: int, now: datetime, config: RunConfig) -> Incident:
    """The provisional incident that this loss makes."""
    return Incident(
        attempt=attempt,
        cause=loss.cause,
        budget=budget_of(loss.cause, config),
        slot=loss.slot,
        rank=loss.rank,
        worker=loss.worker[:253],
        node=loss.node[:253],
        exit_code=loss.exit_code,
        message=loss.message[:1000],
        last_lines=_last(loss.last_lines),
        collateral=loss.collateral,
        time=now,
        detect_seconds=round(loss.age.total_seconds(), 3),
    )


def _last(lines: tuple[str, ...]) -> tuple[str, ...]:
    """The last lines that fit into the status."""
    kept: list[str] = []
    room = LINES_TEXT
    for line in reversed(lines[-20:]):
        room -= len(line)
        if room < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))


def budget_of(cause: Cause, config: RunConfig) -> BudgetName:
    """The budget that a cause is charged to."""
    charge = CAUSES[cause].charge
    if charge == "preemptions" and config.max_preemptions is None:
        return "failures"
    return charge


def refined(view: View, incident: Incident) -> Incident:
    """The open incident with a better explanation, where one has been seen since.

    The time it was first seen and the attempt never change. An explanation is replaced only by a
    better one, so that workers we replaced meanwhile do not blur it.
    """
    if incident.attempt != view.status.attempt or view.record is None:
        return incident
    loss = best(losses_of(view))
    if loss is None:
        return incident
    better = incident_of(loss, attempt=incident.attempt, now=incident.time, config=view.config)
    if _incident_weight(better) >= _incident_weight(incident):
        return incident
    return better.model_copy(update={"detect_seconds": incident.detect_seconds})


def _incident_weight(incident: Incident) -> int:
    code = incident.exit_code
    return weight(
        cause=incident.cause,
        signalled=incident.rank is not None
        and code is not None
        and 128 < code <= 128 + HIGHEST_SIGNAL,
        silent=is_silence(incident),
        collateral=incident.collateral or incident.cause == Cause.RENDEZVOUS_FAILED,
    )


def attribution_open(view: View, incident: Incident) -> bool:
    """Whether a better explanation may still come, so that failing for this one must wait.

    Where only consequences are known: from a worker that has not yet said what happened to it.
    Where a worker is silent: from its node, since a dead one is noticed later than a dead agent.
    """
    if is_silence(incident):
        return _node_may_explain(view, incident)
    if not incident.collateral and incident.cause != Cause.RENDEZVOUS_FAILED:
        return False
    return any(_still_owes_an_answer(view, incident, slot) for slot in range(len(view.roster)))


def is_silence(incident: Incident) -> bool:
    """All that is known is that a worker was not heard any more."""
    return incident.cause == Cause.UNKNOWN and incident.exit_code is None


def _node_may_explain(view: View, incident: Incident) -> bool:
    patience = view.config.heartbeat_timeout + NODE_EVIDENCE
    if incident.slot is None or view.observation.now - incident.time >= patience:
        return False
    worker = view.roster[incident.slot] if incident.slot < len(view.roster) else None
    if worker is None or worker.phase == "Ended" or worker.loss is not None:
        return False
    return bool(worker.node) and view.is_silent(worker)


def _still_owes_an_answer(view: View, incident: Incident, slot: int) -> bool:
    worker, agent = view.roster[slot], view.agents[slot]
    if worker is None:
        return False
    since = view.observation.now - incident.time
    timeout = view.config.heartbeat_timeout
    if agent is None:  # never heard by this operator, or not in this attempt
        return min(since, view.observation.listening_for) <= timeout
    if agent.phase != "Running":
        return False
    unheard = worker.silent_for is not None and worker.silent_for > since
    return unheard or since < timeout
