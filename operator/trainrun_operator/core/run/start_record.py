"""What is recorded before an attempt starts: who trains in it, from where, and where they meet.

Layer: core; below `transitions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.contract import environment
from trainrun_operator.api.run.status import IDENTITY_LENGTH, StartRecord

if TYPE_CHECKING:
    from trainrun.contract.agent_state import Resolution
    from trainrun_operator.core.run.observation import WorkerFact
    from trainrun_operator.core.run.view import View


def record_of(view: View, chosen: tuple[WorkerFact, ...], resolution: Resolution) -> StartRecord:
    """The start record of the next attempt; `chosen` has a worker for each slot."""
    lead = chosen[0].agent
    assert lead is not None, "checked by the barrier"
    assert lead.offer is not None, "checked by the barrier"
    return StartRecord(
        attempt=view.next_attempt,
        roster=tuple(worker.created_for for worker in chosen),
        agents="".join(_identity(worker) for worker in chosen),
        world_size=view.config.world_size,
        resume_point=resolution.resume,
        trial_of=resolution.trial_of,
        master_addr=lead.offer.address,
        master_port=lead.offer.port,
        template_hash=view.config.template_hash,
        run_id=environment.valid_run_id(resolution.run_id) or view.status.run_id,
        time=view.observation.now,
    )


def _identity(worker: WorkerFact) -> str:
    assert worker.agent is not None, "checked by the barrier"
    return worker.agent.agent[:IDENTITY_LENGTH].ljust(IDENTITY_LENGTH)
