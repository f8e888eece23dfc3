"""Telling that ranks count different steps, so that no checkpoint holds the files of all of them.

Layer: agent, pure. Any subset of ranks may bring files, so a single such checkpoint is in order;
three in a row whose ranks alternate are not: each of them would resume with a part missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainrun.contract.agent_state import Problem

if TYPE_CHECKING:
    from trainrun.checkpoint import Manifest


@dataclass(slots=True)
class Turns:
    """Looks at the checkpoints of one attempt as they are committed."""

    problem: Problem | None = None
    """Stays until the attempt ends: its ranks will not count the same steps any more."""
    _before: tuple[Manifest, ...] = ()
    """The last two."""

    def saw(self, manifest: Manifest) -> None:
        """Take a commit into account."""
        if manifest.whole:  # one rank's files on purpose, whichever rank that was
            self._before = ()
            return
        last_three = (*self._before, manifest)
        if len(last_three) == 3 and self.problem is None and _alternate(last_three):
            self.problem = _problem(last_three[1], manifest)
        self._before = last_three[-2:]


def _alternate(manifests: tuple[Manifest, ...]) -> bool:
    first, second, third = map(_ranks, manifests)
    return all((first, second, third)) and not second & (first | third)


def _ranks(manifest: Manifest) -> frozenset[int]:
    return frozenset(rank for item in manifest.files for rank in item.ranks)


def _problem(before: Manifest, last: Manifest) -> Problem:
    return Problem(
        type="CheckpointPartial",
        reason="RanksTakeTurns",
        message=f"the checkpoint of step {last.step} holds files of {_names(last)} alone, that of "
        f"step {before.step} of {_names(before)} alone: a restart would miss the others'. If "
        "all of them belong together, report them with the same step on every rank",
    )


def _names(manifest: Manifest) -> str:
    ranks = sorted(_ranks(manifest))
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "ranks " + ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
