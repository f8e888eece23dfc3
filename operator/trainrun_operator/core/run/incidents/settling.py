"""Opening an incident in the status, settling it, and what it cost.

Layer: core. Every write that ends the provisional state of an incident contains `settled`, so it is
counted once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.core.run import recovery
from trainrun_operator.core.run.causes import Cause, Explains, row_of
from trainrun_operator.core.run.incidents import ledger, openings, standstill
from trainrun_operator.core.run.incidents.attribution import refined
from trainrun_operator.core.run.incidents.standstill import highest_step
from trainrun_operator.core.run.incidents.uptime import gang_trained
from trainrun_operator.core.run.incidents.window import remembered

if TYPE_CHECKING:
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.api.run.incident import Incident
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.view import View


def made_progress(view: View) -> bool:
    """The newest attempt got beyond any step reached before, or has committed a newer checkpoint.

    A run that fails before that makes no progress, however many steps it does again.
    """
    known = highest_step(view) is not None or standstill.advanced(view)
    return known and standstill.gained(view)


def fruitless_after(view: View, incident: Incident) -> int:
    """Attempts in a row without a new step, the one that this incident ends included.

    What is free at first is no training, however long it took: it would be free for ever.
    """
    row = row_of(incident.cause)
    trained = not row.free_tries and incident.cause != Cause.HUNG and gang_trained(view)
    if made_progress(view) or trained:
        return 0
    return view.status.fruitless + row.slows_down


def fruitless_refined(view: View, incident: Incident) -> int:
    """The same once the incident is explained so: before, it may have looked like training."""
    free = row_of(incident.cause).free_tries and not made_progress(view)
    return max(view.status.fruitless, 1) if free else view.status.fruitless


def opened(view: View, status: TrainRunStatus, incident: Incident) -> TrainRunStatus:
    """`status` with this open incident, and with budgets that show it."""
    charged = ledger.charged(status, incident, view.config)
    failures = ledger.tally(status, view.config, pending=charged, at=view.observation.now)
    return replace(status, incident=charged, failures=failures)


def settled(view: View, status: TrainRunStatus) -> TrainRunStatus:
    """`status` with its open incident, if it has one, charged to its budget.

    Every write that ends the provisional state of an incident contains it, so it is counted once.
    """
    if status.incident is None:
        return status
    incident = refined(view, status.incident)
    failures, incidents = ledger.settle(status, incident, view.config)
    last = incidents[-1]
    moments = remembered(status.moments, last) if last.counted else status.moments
    counted = replace(status, failures=failures, moments=moments)
    return replace(
        counted,
        failures=ledger.tally(counted, view.config, pending=None, at=view.observation.now),
        incidents=incidents,
        incident=None,
        free_ends=ledger.free_ends_after(status, incident, view.config),
        tried=openings.tried(status, incident),
        reached=standstill.furthest(view),
        stepped_from=standstill.stepped_from(view),
        without_progress=standstill.in_a_row(view, incident),
    )


def measured(view: View, status: TrainRunStatus, point: CheckpointId | None) -> TrainRunStatus:
    """`settled`, with what the incident cost, now that the next attempt starts from `point`."""
    if status.incident is None:
        return status
    status = settled(view, status)
    last = status.incidents[-1]
    priced = replace(
        last,
        resumed_from=point,
        lost_steps=_lost_steps(view, last, point),
        restart_seconds=round((view.observation.now - last.time).total_seconds(), 3),
    )
    priced = replace(priced, stages=recovery.until_start(view, priced))
    # One recovery in all its parts is enough for a status.
    before = tuple(replace(incident, stages={}, cold="") for incident in status.incidents[:-1])
    return replace(status, incidents=(*before, priced))


def _lost_steps(view: View, incident: Incident, point: CheckpointId | None) -> int | None:
    reached = highest_step(view)
    if reached is None:
        return None
    resumed = point.step if point is not None else 0
    kept = reached if view.status.runs_tasks else resumed
    lost = max(reached - kept, 0)
    # Nobody has heard what a gang did after its operator was gone: that is not nothing.
    unheard = row_of(incident.cause).explains is Explains.TAKEOVER and not lost
    return None if unheard else lost
