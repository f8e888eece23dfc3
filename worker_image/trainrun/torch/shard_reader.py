"""Reads of a sharded checkpoint only the bytes that a rank needs.

Imported only where it is used: torch.distributed.checkpoint takes as long to import as torch.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.futures import Future

from trainrun import Checkpoint

METADATA = ".metadata"
NEAR = 1 << 16
"""Bytes between two pieces that are read along rather than requested apart."""


class ShardReader(FileSystemReader):
    """A `StorageReader` for `torch.distributed.checkpoint.load`.

    Another number of ranks, or another way of sharding, then reads from the store what its ranks
    need and no more. These bytes are not verified: checksums are those of whole files. A rank that
    needs most of the checkpoint does better with `as_directory()`, which reads once per node and
    verifies.
    """

    def __init__(self, checkpoint: Checkpoint, folder: str = "") -> None:
        """`folder`: where in the checkpoint `save` has written; empty: at its top.

        Raises AgentRefused if there is no such checkpoint, and AgentLost.
        """
        self._checkpoint, self._folder = checkpoint, folder
        with checkpoint.as_directory(include=[str(Path(folder, METADATA))]) as directory:
            super().__init__(Path(directory, folder))

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fetch what the plan needs, then read it as from a directory."""
        wanted: dict[str, list[tuple[int, int]]] = {}
        for item in plan.items:
            piece = self.storage_data[item.storage_index]
            wanted.setdefault(piece.relative_path, []).append((piece.offset, piece.length))
        before = self.path
        with ExitStack() as files:
            folder = Path(files.enter_context(tempfile.TemporaryDirectory()))
            for name, pieces in wanted.items():
                path = str(Path(self._folder, name))
                fetched = self._checkpoint.as_partial_file(path, joined(pieces))
                (folder / name).symlink_to(files.enter_context(fetched))
            self.path = folder
            try:
                return super().read_data(plan, planner)
            finally:
                self.path = before


def joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offset and bytes of the ranges that cover these pieces: ascending, and no two are near."""
    ranges: list[tuple[int, int]] = []
    for start, count in sorted(pieces):
        if ranges and start <= sum(ranges[-1]) + NEAR:
            first, end = ranges[-1][0], max(start + count, sum(ranges[-1]))
            ranges[-1] = (first, end - first)
        else:
            ranges.append((start, count))
    return ranges
