"""The storage of a drill's runs, and what may happen to it.

Layer: cli. It is a link to a folder: without the link it is a volume that is not mounted, while
what is kept beside it (status, workers) stays where it is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun.checkpoint.inspection import list_checkpoints
from trainrun.checkpoint.reader import read_manifest
from trainrun.contract import layout

if TYPE_CHECKING:
    from trainrun.checkpoint.run_store import RunStore

AWAY = 5.0
"""Seconds for which a store is away."""


@dataclass(frozen=True, slots=True)
class DrillStore:
    """Below the folder of one run."""

    folder: Path

    @property
    def link(self) -> Path:
        """What `spec.storage` names."""
        return self.folder / "storage"

    def make(self) -> None:
        """Make it, empty."""
        volume = self.folder / "volume"
        volume.mkdir(parents=True)
        self.link.symlink_to(volume, target_is_directory=True)

    def take_away(self) -> None:
        """As if it were not mounted any more."""
        self.link.unlink(missing_ok=True)

    def bring_back(self) -> None:
        """As if it were mounted again."""
        if not self.link.is_symlink():
            self.link.symlink_to(self.folder / "volume", target_is_directory=True)


def spoil_newest(run: RunStore, folder: Path) -> int | None:
    """Change a byte in the largest file of the newest good checkpoint of the run in this folder;
    return its step, None where there is none. Raises StoreError."""
    good = [info for info in list_checkpoints(run) if info.state == "good" and info.size_bytes]
    if not good:
        return None
    newest = good[-1].id
    item = max(read_manifest(run, newest).files, key=lambda it: it.size)
    name = layout.folder(newest) + layout.file_name(item.worker, item.name)
    with (folder / name).open("r+b") as file:
        file.seek(item.size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xFF]))
    return newest.step
