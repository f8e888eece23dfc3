"""The problems of checkpoints that wait: too long for a rank, or for the store.

Layer: agent, pure. A rank that is silent is usually that of a script which saves only on rank 0;
without the message its checkpoints would silently never be committed.
"""

from __future__ import annotations

from trainrun.agent.checkpoints.staged import StagedSteps, Step
from trainrun.contract.agent_state import Problem
from trainrun.errors import CheckpointDamaged, StoreError


def overdue_checkpoint(
    staged: StagedSteps, living: tuple[int, ...], now: float, patience: float
) -> Problem | None:
    """The problem of the oldest checkpoint that waits for a rank of this worker for more than
    `patience` seconds; None: there is none."""
    for entry in staged.incomplete():
        if staged.has_pending(entry.step):
            continue
        silent = [rank for rank in staged.not_passed_by(entry.step) if rank in living]
        if silent and now - entry.first > patience:
            return Problem(
                type="CheckpointWaiting",
                reason="RanksSilent",
                message=_overdue_message(entry, silent, staged, patience),
            )
    return None


def _overdue_message(entry: Step, silent: list[int], staged: StagedSteps, patience: float) -> str:
    brought = named_ranks(sorted(entry.files)) if entry.files else "another worker"
    since = f"{brought} brought checkpoint files more than {patience:.0f} s ago"
    they_have = f"{named_ranks(silent)} {'has' if len(silent) == 1 else 'have'}"
    if staged.only_open(entry.step):
        return (
            f"the checkpoint of step {entry.step} is waiting: {since}, but {they_have} reported "
            "the step without files and nothing since, so files may follow. Report the next step, "
            "pass checkpoint=None if there are no files, or call report(..., whole=True) on the "
            "rank that saves everything"
        )
    return (
        f"the checkpoint of step {entry.step} is waiting: {since}, but {they_have} not reported "
        f"this step or a later one. Call trainrun.report(step={entry.step}) on every rank, or "
        "report(..., whole=True) on the rank that saves everything"
    )


def named_ranks(ranks: list[int]) -> str:
    """For a message: at most eight ranks, by number."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "ranks " + ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


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
