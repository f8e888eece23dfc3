"""Why checkpoints wait to be stored, as a problem for the user.

Layer: agent, pure.
"""

from __future__ import annotations

from trainrun.contract.agent_state import Problem
from trainrun.errors import CheckpointDamaged, StoreError


def waiting_problem(attempt: int, error: Exception) -> Problem:
    """The problem of an attempt whose uploads have failed with this error and are tried again."""
    if isinstance(error, CheckpointDamaged):
        kind = "CheckpointDamaged"
    elif isinstance(error, StoreError):
        kind = "StorageUnavailable"
    else:
        kind = "StagingUnreadable"
    message = f"checkpoints of attempt {attempt} wait to be stored: {error}"
    return Problem(type=kind, reason=type(error).__name__, message=message)
