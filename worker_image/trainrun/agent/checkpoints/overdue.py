"""Telling that a checkpoint waits for a rank that says nothing about its step.

Layer: agent, pure. The usual reason is a script that saves on rank 0 alone; without this message
its checkpoints would silently never be committed.
"""

from __future__ import annotations

from trainrun.agent.checkpoints.staged import StagedSteps, Step
from trainrun.contract.agent_state import Problem


def overdue_checkpoint(
    staged: StagedSteps, living: tuple[int, ...], now: float, patience: float
) -> Problem | None:
    """Return the problem of the oldest checkpoint that waits too long for one of our ranks.

    Too long: more than `patience` seconds.
    """
    for entry in staged.incomplete():
        silent = [rank for rank in staged.not_passed_by(entry.step) if rank in living]
        if silent and now - entry.first > patience:
            return Problem(
                type="CheckpointWaiting",
                reason="RanksSilent",
                message=_message(entry, silent, staged, patience),
            )
    return None


def _message(entry: Step, silent: list[int], staged: StagedSteps, patience: float) -> str:
    brought = f"{_name(sorted(entry.files))}" if entry.files else "another worker"
    since = f"{brought} brought checkpoint files more than {patience:.0f} s ago"
    if staged.only_open(entry.step):
        return (
            f"{_name(silent)} {'has' if len(silent) == 1 else 'have'} reported step {entry.step} "
            f"without files and nothing since, and {since}: the checkpoint waits, since files may "
            "follow. Report the next step, say checkpoint=None where there are no files, or call "
            "report(..., whole=True) on the rank that saves everything"
        )
    return (
        f"{_name(silent)} {'has' if len(silent) == 1 else 'have'} not reported step {entry.step} "
        f"or a later one, for which {since}: the checkpoint waits. Call "
        f"trainrun.report(step={entry.step}) on every rank, or report(..., whole=True) on the rank "
        "that saves everything"
    )


def _name(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "ranks " + ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
