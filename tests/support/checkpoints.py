"""Builders for tests of checkpoints: `commit(run, step=3)` and the folders around it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.support.fake_clock import FakeClock
from trainrun.checkpoint.description import describe_part
from trainrun.checkpoint.ownership import BeatWatch
from trainrun.checkpoint.reader import checkpoint_on_node, initial_on_node, read_manifest
from trainrun.checkpoint.records import Manifest
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.writer import LocalFile, Upload, commit_if_complete, scan, write_part
from trainrun.contract.agent_state import Resolution
from trainrun.contract.answer import ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId


def materialize(
    run: RunStore, checkpoint: CheckpointId, *, cache_dir: Path, rank: int | None = None
) -> Path:
    """Read a checkpoint as an agent does that has nobody to copy it from."""
    manifest = read_manifest(run, checkpoint)
    return checkpoint_on_node(run, manifest, cache_dir=cache_dir, rank=rank).directory()


def materialize_initial(uri: str, *, cache_dir: Path) -> Path:
    """Read initial weights likewise."""
    with closing(open_store(uri)) as store:
        found = initial_on_node(store, cache_dir=cache_dir)
        return found if isinstance(found, Path) else found.directory()


def checkpoint_id(attempt: int, step: int) -> CheckpointId:
    return CheckpointId(attempt=attempt, step=step)


@dataclass
class Bench:
    """A run's folder, a scratch folder for what ranks save, and short verbs on both."""

    run: RunStore
    scratch: Path
    uid: str = "uid-1"
    clock: FakeClock = field(default_factory=FakeClock)
    watch: BeatWatch = field(init=False)
    saved: int = 0

    def __post_init__(self) -> None:
        self.watch = BeatWatch(lease=30.0, clock=self.clock)

    def save(self, rank: int, files: Mapping[str, bytes]) -> list[LocalFile]:
        """What a rank does: write its files into a directory of its own."""
        self.saved += 1
        directory = self.scratch / f"saved-{self.saved}-rank-{rank}"
        for name, content in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        directory.mkdir(parents=True, exist_ok=True)
        return scan(directory, rank=rank)

    def part(
        self,
        *,
        attempt: int = 1,
        step: int,
        worker: int = 0,
        workers: int = 1,
        files: Mapping[int, Mapping[str, bytes]],
        whole: bool = False,
    ) -> Manifest | None:
        """Store one worker's part; `files` by rank."""
        local = [item for rank, named in files.items() for item in self.save(rank, named)]
        return write_part(
            self.run,
            attempt=attempt,
            step=step,
            worker=worker,
            workers=workers,
            files=local,
            metrics={"loss": float(step), "worker": worker},
            whole=whole,
        )

    def described(
        self, step: int, *, attempt: int = 1, only: tuple[int, ...] = (0, 1)
    ) -> CheckpointId:
        """What `commit` would store is on the disks of these of two workers."""
        checkpoint = checkpoint_id(attempt, step)
        for worker in only:
            describe_part(
                self.run,
                checkpoint,
                worker=worker,
                workers=2,
                files=self.save(worker, contents(attempt, step, worker)),
                metrics={"loss": float(step), "worker": worker},
                metadata={},
                unchanged=lambda: None,
                upload=Upload(),
            )
        return checkpoint

    def store(self, files: list[LocalFile], *, step: int, upload: Upload) -> Manifest | None:
        """Store a whole checkpoint of one worker; go on with an upload that was broken off."""
        return write_part(
            self.run,
            attempt=1,
            step=step,
            worker=0,
            workers=1,
            files=files,
            metrics={},
            whole=True,
            upload=upload,
        )

    def commit(self, *, attempt: int = 1, step: int, workers: int = 2) -> Manifest:
        """A complete checkpoint: rank r = worker r brings `model-rank<r>.pt` and `common.json`."""
        for worker in range(workers):
            self.part(
                attempt=attempt,
                step=step,
                worker=worker,
                workers=workers,
                files={worker: contents(attempt, step, worker)},
            )
        manifest = commit_if_complete(self.run, attempt=attempt, step=step)
        assert manifest is not None
        return manifest

    def resolve(
        self,
        attempt: int,
        *,
        uid: str = "",
        on_existing: Literal["Resume", "Fail", "StartFresh"] = "Resume",
        generation: int = 0,
        ended: str = "",
        committed: CheckpointId | None = None,
        trial_of: CheckpointId | None = None,
        staged: CheckpointId | None = None,
        params: str = "",
        look: bool = False,
    ) -> Resolution:
        request = ResolveRequest(
            attempt=attempt,
            on_existing=on_existing,
            ended=ended,
            committed=committed,
            trial_of=trial_of,
            staged=staged,
            workers=2 if staged is not None else 0,
            look=look,
        )
        return resolve(
            self.run,
            request,
            uid=uid or self.uid,
            generation=generation,
            watch=self.watch,
            params=params,
        )


class Counting(Upload):
    """Knows how many bytes were sent, repeated ones included."""

    moved = 0

    def advance(self, count: int) -> None:
        self.moved += count
        super().advance(count)


class Through:
    """The store of a bench in all but what a subclass changes."""

    def __init__(self, bench: Bench) -> None:
        self._store = bench.run.store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def contents(attempt: int, step: int, worker: int, size: int = 2000) -> dict[str, bytes]:
    """What worker `worker`'s only rank saves: different for every checkpoint and rank."""
    line = f"{attempt}/{step}/{worker};".encode()
    return {
        f"model-rank{worker}.pt": (line * (size // len(line) + 1))[:size],
        "common.json": f'{{"attempt": {attempt}, "step": {step}}}'.encode(),
    }


def read_directory(directory: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def expected_directory(attempt: int, step: int, workers: int = 2) -> dict[str, bytes]:
    """What `Bench.commit` should look like when read."""
    merged: dict[str, bytes] = {}
    for worker in range(workers):
        merged |= contents(attempt, step, worker)
    return merged
