"""Results on the node's disk, stored by digest, so that a worker downloads each one once.

Layer: tasks. Invariants: a file appears complete, by a rename, after its digest was checked; a
reader gets a hard link in its own folder, so removing a file here breaks no reader. Results that no
store has (`keep="node"`) are removed only when the disk is full. Ranks share the cache and use the
kernel's file locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from trainrun._common.tree import remove_directory
from trainrun.tasks.records import Output
from trainrun.tasks.values import digest_of, restore_folder

MOST = 10 << 30
"""Bytes of results kept here that the store also has; at most a tenth of the disk."""


class ResultDamaged(Exception):
    """A downloaded result has the wrong digest."""


class ResultCache:
    """Methods block, and raise OSError if the disk fails. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("store", "node", "folders", "work"):
            self._made(name)
        self.bound = min(MOST, shutil.disk_usage(folder).total // 10)
        self._trusted: set[str] = set()  # digests that this process has checked
        self._added = self.bound  # bytes added since the last look at the total

    def workplace(self, name: str) -> Path:
        """Make an empty work folder, deleting what an earlier process left there."""
        path = self._folder / "work" / name
        remove_directory(path)
        path.mkdir(parents=True)
        return path

    def take(self, output: Output, place: Path, bring: Callable[[Path], None]) -> Path:
        """Return a result as a file linked into `place`, or as the directory of a Folder, which
        exists as long as `place` does. `bring` downloads it if it is not cached.

        Raises ResultDamaged, and what `bring` raises.
        """
        with self._locked(output.digest[:2]):
            linked = self._link(output, place)
            if linked is None:
                self._bring(output, bring)
                linked = self._link(output, place)
            if linked is None:
                raise ResultDamaged(output.digest)
            directory = linked if output.kind == "Value" else self._directory(output, linked)
        self._grown(output)
        return directory

    def add(self, output: Output, path: Path) -> Path:
        """Move our own result, whose digest is right, into the cache; return its new path."""
        target = self._made(output.kept.lower()) / output.digest
        path.chmod(0o400)
        path.replace(target)
        self._trusted.add(output.digest)
        self._grown(output)
        return target

    def find(self, digest: str) -> Path | None:
        """Return our copy if its digest is still right."""
        for path in self._places(digest):
            with contextlib.suppress(FileNotFoundError):
                if digest_of(path) == digest:
                    return path
        return None

    def shrink(self, bound: int, *, everything: bool = False) -> None:
        """Remove copies that were not used for longest, until the rest is within the bound.

        `everything`: also results that are in no store; somebody may have to make them again.
        """
        with self._locked("all"):
            entries = sorted(self._unused("store"))
            if everything:
                entries += sorted(self._unused("node"))
            total = sum(size for _, size, _ in entries)
            for _, size, path in entries:
                if total <= bound:
                    return
                path.unlink(missing_ok=True)
                remove_directory(self._folder / "folders" / path.name)
                total -= size

    def _grown(self, output: Output) -> None:
        self._added += output.size
        if self._added > self.bound // 64:
            self._added = 0
            self.shrink(self.bound)

    def _unused(self, kind: str) -> Iterator[tuple[float, int, Path]]:
        """Last use and bytes of each unused file. A file in use has more than one link."""
        for entry in os.scandir(self._made(kind)):
            facts = entry.stat()
            if facts.st_nlink == 1:
                yield facts.st_mtime, facts.st_size, Path(entry.path)

    def _made(self, name: str) -> Path:
        """A folder of the cache, made again if a user deleted it to free space."""
        path = self._folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _places(self, digest: str) -> list[Path]:
        return [self._folder / kind / digest for kind in ("store", "node")]

    def _link(self, output: Output, place: Path) -> Path | None:
        target = place / output.digest
        for path in self._places(output.digest):
            with contextlib.suppress(FileNotFoundError), self._locked("all", shared=True):
                target.unlink(missing_ok=True)
                os.link(path, target)
                if not self._right(output, target):
                    path.unlink()
                    continue
                os.utime(target)
                return target
        target.unlink(missing_ok=True)
        return None

    def _right(self, output: Output, path: Path) -> bool:
        if path.stat().st_size != output.size:
            return False
        if output.digest not in self._trusted:
            if digest_of(path) != output.digest:
                return False
            self._trusted.add(output.digest)
        return True

    def _bring(self, output: Output, bring: Callable[[Path], None]) -> None:
        partial = self._folder / "work" / f".{output.digest}"
        partial.unlink(missing_ok=True)
        try:
            bring(partial)
            if digest_of(partial) != output.digest:
                raise ResultDamaged(output.digest)
            self._trusted.add(output.digest)
            partial.chmod(0o400)
            partial.replace(self._made("store") / output.digest)
        finally:
            partial.unlink(missing_ok=True)

    def _directory(self, output: Output, tar: Path) -> Path:
        folder = self._made("folders") / output.digest
        if not folder.is_dir():
            partial = folder.with_name(f".{output.digest}")
            remove_directory(partial)
            restore_folder(tar, partial)
            partial.rename(folder)
        return folder

    @contextlib.contextmanager
    def _locked(self, name: str, *, shared: bool = False) -> Iterator[None]:
        """Lock one digest among threads and processes; `all`: keeps removing from linking."""
        lock = os.open(self._folder / "work" / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # The kernel releases the lock however its holder dies.
            fcntl.flock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
