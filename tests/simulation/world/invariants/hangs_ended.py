"""A hang ends an attempt only where the spec says so: by a timeout, or by `hangPolicy: Restart`.

Layer: simulation. What was only learned is observed otherwise, and slow ranks are only told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.api.run.status_parts import Cause

if TYPE_CHECKING:
    from tests.simulation.world.invariants.case import Case
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.api.run.status_parts import Incident


class HangsEnded:
    """Judges each hang that has become an incident."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._judged: set[int] = set()

    def status(self, new: TrainRunStatus) -> None:
        """A status was written."""
        for incident in new.all_incidents[-2:]:
            if incident.cause == Cause.HUNG and incident.attempt not in self._judged:
                self._judged.add(incident.attempt)
                self._was_to_be(incident)

    def _was_to_be(self, incident: Incident) -> None:
        config = self._case.world.config
        timeouts = {
            "spec.health.progressTimeout": config.progress_timeout,
            "spec.health.firstStepTimeout": config.first_step_timeout,
        }
        named = [field for field in timeouts if field in incident.message]
        if any(timeouts[field] is None for field in named):
            self._case.wrong(f"a hang ends attempt {incident.attempt} by {named}, which is not set")
        if not named and config.hang_policy != "Restart":
            self._case.wrong(
                f"a hang ends attempt {incident.attempt}, and hangPolicy is {config.hang_policy}"
            )
