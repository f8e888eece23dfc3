"""What a program of tasks asks of the place where its log and its results are kept.

Layer: tasks. Under an agent it asks the agent, which alone knows the store; elsewhere a folder.
Names of objects are relative to `tasks/objects/`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from trainrun.errors import ObjectNotFound
from trainrun.tasks.values import digest_of

FOLDER = Path(".trainrun/tasks")
"""Of the logs of programs outside of a run, below the working folder."""


class Keep(Protocol):
    """Calls may be made from several threads, and take as long as a store takes.

    Each raises StoreError where the store does not do it; nothing is known then.
    """

    @property
    def uri(self) -> str:
        """Address of `tasks/`, for people."""

    def read(self, after: int) -> list[bytes]:
        """All batches of the log behind this position, in order. The first has position 1.

        Raises TaskLogDamaged where one is missing or damaged."""

    def append(self, position: int, batch: bytes) -> bool:
        """Write the batch at this position; False: another one stands there."""

    def upload(self, path: Path, name: str) -> None:
        """Store this file. One that is there already is replaced."""

    def download(self, name: str, path: Path) -> None:
        """Bring an object to a new file. Raises ObjectNotFound. Its digest is the caller's
        business, and so is what is left of the file where this fails."""

    def sizes(self, names: list[str]) -> list[int | None]:
        """Bytes of each object; None: it is not there."""

    def set_aside(self, name: str) -> None:
        """Move a damaged object to `tasks/damaged/`."""


def digest_in(keep: Keep, name: str, file: Path) -> str:
    """sha256 of the object as the keep has it now; empty: it has none. `file` is used meanwhile."""
    try:
        keep.download(name, file)
        return digest_of(file)
    except ObjectNotFound:
        return ""
    finally:
        file.unlink(missing_ok=True)
