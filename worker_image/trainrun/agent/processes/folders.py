"""The worker's private folder: staging, control and error files, sockets of each attempt.

Layer: agent, leaf. Everything of an attempt lies under a name with its number, so that forgetting
lower attempts is a removal and nothing of theirs can be taken for the present one's.
"""

from __future__ import annotations

import logging
from pathlib import Path

from trainrun.agent.processes.environment import RankFiles, caches
from trainrun.disk import remove_directory

LOG = logging.getLogger("trainrun.agent")


class Folders:
    """Paths below `directory`; made when they are needed."""

    def __init__(self, directory: str) -> None:
        self._root = Path(directory).absolute()

    def prepare(self) -> None:
        """Make the folder and forget what an earlier agent of this worker left in it."""
        self._root.mkdir(parents=True, exist_ok=True)
        for folder in caches(self._root).values():  # not every compiler makes what is above its own
            folder.mkdir(parents=True, exist_ok=True)
        self.forget_below(2**63)

    def of_rank(self, attempt: int, rank: int) -> RankFiles:
        """Make the folders of one rank and return its paths."""
        staging = self.staging(attempt) / f"rank-{rank}"
        staging.mkdir(parents=True, exist_ok=True)
        own = self._root / "ranks" / f"attempt-{attempt}"
        own.mkdir(parents=True, exist_ok=True)
        return RankFiles(
            socket=self.socket(attempt),
            staging=staging,
            control_file=own / f"rank-{rank}",
            error_file=own / f"rank-{rank}.error.json",
            token_file=own / f"rank-{rank}.token",
            stacks=own / f"rank-{rank}.stacks",
        )

    def staging(self, attempt: int) -> Path:
        """Where the ranks of `attempt` stage their checkpoints."""
        return self._root / "staging" / f"attempt-{attempt}"

    @property
    def standby(self) -> Path:
        """What standby interpreters start with."""
        return self._root / "standby"

    def socket(self, attempt: int) -> Path:
        """The socket on which the processes of `attempt` reach the agent."""
        return self._root / f"{attempt}.sock"

    def forget_below(self, attempt: int) -> None:
        """Remove everything of lower attempts. May take long: call it in a thread."""
        for kind in ("staging", "ranks"):
            for folder in (self._root / kind).glob("attempt-*"):
                number = folder.name.partition("-")[2]
                if number.isdigit() and int(number) < attempt:
                    remove(folder)


def remove(folder: Path) -> None:
    """Delete a folder with all that is in it, as far as that is allowed; what stays is told."""
    if reason := remove_directory(folder):
        LOG.warning("%s takes room, since it cannot be removed: %s", folder, reason)
