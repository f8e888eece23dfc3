"""The worker's private folder: staging, control files and sockets of each attempt.

Layer: agent, leaf. Everything of an attempt lies under a name with its number, so that forgetting
lower attempts is a removal and nothing of theirs can be taken for the present one's.
"""

from __future__ import annotations

from pathlib import Path

from trainrun.agent.environment import RankFiles

LONGEST_SOCKET_PATH = 100
"""A unix socket's path has 108 bytes in Linux; longer folders get a short one beside."""


class Folders:
    """Paths below `directory`; made when they are needed."""

    def __init__(self, directory: str) -> None:
        self._root = Path(directory).absolute()
        self._short: Path | None = None

    def prepare(self) -> None:
        """Make the folder and forget what an earlier agent of this worker left in it."""
        self._root.mkdir(parents=True, exist_ok=True)
        self.forget_below(2**63)

    def of_rank(self, attempt: int, rank: int) -> RankFiles:
        """Make the folders of one rank and return its paths."""
        staging = self.staging(attempt) / f"rank-{rank}"
        staging.mkdir(parents=True, exist_ok=True)
        control = self._root / "control" / f"attempt-{attempt}"
        control.mkdir(parents=True, exist_ok=True)
        return RankFiles(
            socket=self.socket(attempt),
            staging=staging,
            control=control / f"rank-{rank}",
            error_file=control / f"rank-{rank}.error.json",
        )

    def staging(self, attempt: int) -> Path:
        """Where the ranks of `attempt` stage their checkpoints."""
        return self._root / "staging" / f"attempt-{attempt}"

    def socket(self, attempt: int) -> Path:
        """The socket on which the processes of `attempt` reach the agent."""
        path = self._root / f"{attempt}.sock"
        if len(str(path).encode()) > LONGEST_SOCKET_PATH:
            if self._short is None:
                self._short = _temporary()
            path = self._short / path.name
        return path

    def forget_below(self, attempt: int) -> None:
        """Remove everything of lower attempts. May take long: call it in a thread."""
        for kind in ("staging", "control"):
            for folder in (self._root / kind).glob("attempt-*"):
                number = folder.name.partition("-")[2]
                if number.isdigit() and int(number) < attempt:
                    remove(folder)

    def close(self) -> None:
        """Remove the short folder, if one was made."""
        if self._short is not None:
            remove(self._short)


def remove(folder: Path) -> None:
    """Delete a folder with all that is in it, as far as that is allowed."""
    import shutil  # noqa: PLC0415 - brings bz2 and lzma: 5 ms at a start that deletes nothing

    shutil.rmtree(folder, ignore_errors=True)


def _temporary() -> Path:
    import tempfile  # noqa: PLC0415 - brings shutil

    return Path(tempfile.mkdtemp(prefix="trainrun-"))
