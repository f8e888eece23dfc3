"""The run's object storage as the agent uses it: every call in a thread, none in the event loop.

Layer: agent, over `trainrun.checkpoint`; no other module of the agent reads or writes there. What
is behind it (boto3 costs half a second of CPU) is loaded by `warm_up`, or by the first call.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainrun import checkpoint as api
from trainrun.agent.checkpoints.copying import Copying
from trainrun.agent.processes.folders import remove
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.agent_state import Resolution
from trainrun.contract.answer import OpenStep, PeerSource, Recheck, ResolveRequest, SaveOrder
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import EvidenceRequest
from trainrun.errors import ObjectNotFound, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from trainrun.checkpoint import (
        BeatWatch,
        CachedFile,
        FilesOnNode,
        Manifest,
        ObjectStore,
        RunStore,
        Upload,
        WorkerLog,
    )

T = TypeVar("T")

LOOK = 0.05
"""Seconds between two looks at whether a file has arrived."""
THREADS = 8
"""For uploads, commits, the beat and resolutions; each process may wait for a download besides."""


class AsyncRunStore:
    """The store of one run. Every method raises what `trainrun.checkpoint` documents."""

    def __init__(
        self, config: AgentConfig, *, bring_boto3: Callable[[], None] | None = None
    ) -> None:
        """`bring_boto3` is called before anything may import boto3, in any thread, repeatedly;
        None where boto3 is installed."""
        self._config = config
        self.settings = config.settings
        """What retention goes by; may be changed."""
        self._bring_boto3 = bring_boto3
        self._pool = ThreadPoolExecutor(
            THREADS + config.processes_per_worker, thread_name_prefix="store"
        )
        self._opened: RunStore | None = None
        self.generation = 0
        """Of the run's folder: that in which everything is; 0: not known, the first one."""
        self._watch: BeatWatch | None = None
        self._metrics: dict[int, api.MetricsLog] = {}
        """That of the attempt which has written last."""
        self._manifest: Manifest | None = None
        """The one that was read last."""
        self._served: dict[bool, FilesOnNode] = {}
        """What other workers have asked for last, of checkpoints and of initial weights (True)."""
        # Downloads of one node wait for each other anyway: then not in threads, which ranks that
        # die meanwhile would leave behind.
        self._downloading = asyncio.Lock()
        # A beat or a claim under way would take back the release that came after it.
        self._beating = threading.Lock()
        self._claiming = threading.Lock()

    def enter(self, generation: int) -> None:
        """Everything is in this generation of the run's folder; 0: that is not known."""
        if generation:
            self.generation = generation

    async def warm_up(self) -> None:
        """Load and connect what later calls need."""
        try:
            await self._call(lambda: self._run().attempts())
        except StoreError:
            pass  # later calls meet it again, and report it where it matters

    async def resolve(self, request: ResolveRequest) -> Resolution:
        """Claim the resume point of an attempt; trouble with the store is an outcome."""
        return await self._call(self._resolve, request)

    async def write_part(
        self,
        checkpoint: CheckpointId,
        *,
        workers: int,
        files: Mapping[int, Path],
        metrics: Mapping[str, object],
        metadata: Mapping[str, object],
        whole: bool,
        upload: Upload,
    ) -> Manifest | None:
        """Upload this worker's part of a checkpoint, its done marker (or manifest) last."""
        return await self._call(
            lambda: self._write_part(
                checkpoint, workers, files, metrics, metadata, whole=whole, upload=upload
            )
        )

    async def commit(self, checkpoint: CheckpointId) -> Manifest | None:
        """Write the manifest if every worker's part is there. Raises CheckpointFenced."""
        return await self._call(self._commit, checkpoint)

    async def retain(self, attempt: int) -> None:
        """Delete what retention allows."""
        now = self.settings
        score = (
            api.Score(metric=now.score_metric, order=now.score_order) if now.score_metric else None
        )
        await self._call(
            lambda: api.retain(self._run(), attempt=attempt, keep=now.keep, score=score)
        )

    async def open_steps(self, attempt: int) -> tuple[OpenStep, ...]:
        """Steps of an attempt that were begun and are not committed."""
        return await self._call(lambda: api.open_steps(self._run(), attempt=attempt))

    async def manifest(self, checkpoint: CheckpointId) -> Manifest:
        """Read a checkpoint's manifest, once: it never changes."""
        if self._manifest is None or self._manifest.id != checkpoint:
            self._manifest = await self._call(lambda: api.read_manifest(self._run(), checkpoint))
        return self._manifest

    async def materialize(
        self, checkpoint: CheckpointId, rank: int | None, source: PeerSource | None = None
    ) -> Path:
        """Download a checkpoint, once per node; from `source` where that works."""
        async with self._downloading:
            return await self._call(self._materialize, checkpoint, rank, source)

    async def prefetch(
        self, checkpoint: CheckpointId, ranks: Sequence[int], wanted: Callable[[], bool]
    ) -> int:
        """Bring what these ranks will most likely read of it and return how many bytes that is.
        Whoever wants the same checkpoint waits for it, nobody else does. Between two files `wanted`
        is asked, in another thread: where it is not any more, it ends with StoreUnavailable."""
        return await self._call(self._prefetch, checkpoint, ranks, wanted)

    async def materialize_initial(self, source: PeerSource | None = None) -> Path:
        """Download what `checkpoint.initialFrom` names, once per node; from `source` likewise."""
        async with self._downloading:
            return await self._call(self._materialize_initial, source)

    async def obtain(self, name: str, source: str) -> Path:
        """One file of a checkpoint (or of the initial one) for another worker: the local one,
        downloaded if need be."""
        files = await self._named(name)
        while True:
            if (path := files.find(source)) is not None:
                return path
            if not self._downloading.locked():
                async with self._downloading:
                    return await self._call(files.download, source)
            await asyncio.sleep(LOOK)  # a download is under way, which may bring this file

    def received(self, name: str) -> int:
        """Bytes of what `obtain` was asked for that are on this node."""
        return sum(files.received() for files in self._served.values() if files.name == name)

    async def set_aside(self, checkpoint: CheckpointId, reason: str) -> None:
        """Never resume from this checkpoint again."""
        await self._call(lambda: api.set_aside(self._run(), checkpoint, reason))

    async def shown_damage(self, checkpoint: CheckpointId) -> str:
        """What the listing shows to be wrong with a checkpoint; empty: nothing."""
        return await self._call(lambda: api.shown_damage(self._run(), checkpoint))

    async def is_set_aside(self, checkpoint: CheckpointId) -> bool:
        """Whether it is never to be resumed from again."""
        return await self._call(lambda: self._run().is_bad(checkpoint))

    async def read_again(self, order: Recheck) -> None:
        """Read some files of a checkpoint, whatever this node has already."""
        await self._call(
            lambda: api.read_again(self._run(), order.id, order.files, scratch=self._cache)
        )

    async def beat(self, counter: int, committed: CheckpointId | None) -> bool:
        """Show that the owner lives; False when the storage is not ours (any more)."""
        return await self._call(self._beat, counter, committed)

    async def owner(self) -> str:
        """Uid of the TrainRun that has claimed the storage last; empty where nobody has."""
        return await self._call(lambda: api.owner_uid(self._run()))

    async def newest_attempt(self) -> int:
        """The highest attempt that was claimed, 0 before the first."""
        return await self._call(lambda: max(self._run().attempts(), default=0))

    async def release(self) -> None:
        """Give the storage up, so that the next owner need not wait."""
        await self._call(self._release)

    async def finish(self) -> None:
        """Record that the run has succeeded."""
        await self._call(lambda: api.finish(self._run(), uid=self._config.run_uid))

    async def write_metrics(self, attempt: int, records: Sequence[Mapping[str, object]]) -> None:
        """Write the next piece of an attempt's metrics."""
        await self._call(self._write_metrics, attempt, records)

    async def write_log(self, log: WorkerLog) -> None:
        """Write the last lines of this worker's processes; slot 0 forgets those of old attempts."""
        await self._call(self._write_log, log)

    async def write_story(self, number: int, chapter: Mapping[str, Any]) -> None:
        """Write a chapter of the run's story; one that stands there stays."""
        config = self._config
        record = api.StoryRecord(
            number=number, uid=config.run_uid, run=config.run, chapter=dict(chapter)
        )
        await self._call(lambda: api.write_story(self._run(), record))

    async def write_hang(self, request: EvidenceRequest, ranks: Sequence[dict[str, Any]]) -> None:
        """Write where the ranks of this worker stand; what stands there already stays."""
        config = self._config
        record = api.HangRecord(
            attempt=request.attempt,
            number=request.number,
            worker=config.slot,
            node=config.node,
            ranks=tuple(ranks),
        )
        await self._call(lambda: api.write_hang(self._run(), record))

    async def cast_ballot(
        self, attempt: int, call: int, *, agrees: bool, asked: SaveOrder | None
    ) -> None:
        """Tell the other agents whether this worker saves at a call of `should_save()`."""
        slot = self._config.slot
        ballot = api.Ballot(attempt=attempt, call=call, slot=slot, agrees=agrees, asked=asked)
        await self._call(lambda: api.cast_ballot(self._run(), ballot))

    async def ballots(self, attempt: int) -> Mapping[int, Mapping[int, bool]]:
        """What the workers of an attempt have told each other, by call and slot."""
        return await self._call(lambda: api.read_ballots(self._run(), attempt))

    async def asked_to_save(
        self, attempt: int, call: int, said: Mapping[int, bool]
    ) -> SaveOrder | None:
        """What asked for a call, as others have written it."""
        return await self._call(lambda: api.asked_to_save(self._run(), attempt, call, said))

    async def remove(self, directories: list[Path]) -> None:
        """Delete local directories, which may take long for large checkpoints."""
        for directory in directories:
            await self._call(remove, directory)

    def close(self) -> None:
        """Take no more calls; those under way are left behind."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _call(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.wrap_future(self._pool.submit(function, *args))

    def _run(self) -> RunStore:
        if self._opened is None:
            storage = self._config.storage
            self._opened = api.RunStore(self._open(storage.uri), storage.run_name)
        return replace(self._opened, generation=max(self.generation, 1))

    def _open(self, uri: str) -> ObjectStore:
        if self._bring_boto3 is not None and uri.startswith("s3://"):
            self._bring_boto3()
        storage = self._config.storage
        return api.open_store(uri, endpoint_url=storage.endpoint_url, region=storage.region)

    @property
    def _cache(self) -> Path:
        return Path(self._config.cache)

    def _materialize(
        self, checkpoint: CheckpointId, rank: int | None, source: PeerSource | None
    ) -> Path:
        run = self._run()
        manifest = api.read_manifest(run, checkpoint)
        files = api.checkpoint_on_node(run, manifest, cache_dir=self._cache, rank=rank)
        return _directory(files, source)

    def _prefetch(
        self, checkpoint: CheckpointId, ranks: Sequence[int], wanted: Callable[[], bool]
    ) -> int:
        def not_copied(_file: CachedFile, _path: Path) -> bool:
            if not wanted():
                raise StoreUnavailable("another checkpoint was chosen")
            return False

        run = self._run()
        manifest = api.read_manifest(run, checkpoint)
        files = api.likely_on_node(run, manifest, cache_dir=self._cache, ranks=ranks)
        files.directory(copy=not_copied)
        return sum(file.size for file in files.files)

    def _materialize_initial(self, source: PeerSource | None) -> Path:
        with contextlib.closing(self._initial_store()) as store:
            found = api.initial_on_node(store, cache_dir=self._cache)
            return found if isinstance(found, Path) else _directory(found, source)

    def _initial_store(self) -> ObjectStore:
        """A new one each time: it may be there only now, or have other credentials."""
        if self._config.initial_from is None:
            raise ObjectNotFound("the run has no checkpoint.initialFrom")
        return self._open(self._config.initial_from)

    async def _named(self, name: str) -> FilesOnNode:
        checkpoint = CheckpointId.named(name)
        known = self._served.get(checkpoint is None)
        if known is not None and known.name == name:
            return known
        if checkpoint is not None:
            manifest = await self.manifest(checkpoint)
            found: FilesOnNode | Path = api.checkpoint_on_node(
                self._run(), manifest, cache_dir=self._cache
            )
        else:
            found = await self._call(
                lambda: api.initial_on_node(self._initial_store(), cache_dir=self._cache)
            )
        if isinstance(found, Path) or found.name != name:
            raise ObjectNotFound(f"{name} is not here")
        self._served[checkpoint is None] = found
        return found

    def _beat(self, counter: int, committed: CheckpointId | None) -> bool:
        with self._beating:
            uid = self._config.run_uid
            return api.beat(self._run(), uid=uid, counter=counter, committed=committed)

    def _release(self) -> None:
        with self._claiming, self._beating:
            api.release(self._run(), uid=self._config.run_uid)

    def _write_metrics(self, attempt: int, records: Sequence[Mapping[str, object]]) -> None:
        log = self._metrics.get(attempt)
        if log is None:
            log = api.MetricsLog(self._run(), attempt=attempt)
            # The one before may still be writing its last piece.
            before = max(self._metrics, default=attempt)
            self._metrics = {n: it for n, it in self._metrics.items() if n == before}
            self._metrics[attempt] = log
        log.write(records)

    def _resolve(self, request: ResolveRequest) -> Resolution:
        if self._watch is None:
            self._watch = api.BeatWatch()
        with self._claiming:
            found = api.resolve(
                self._run(),
                uid=self._config.run_uid,
                attempt=request.attempt,
                on_existing=request.on_existing,
                generation=self.generation,
                ended=request.ended,
                committed=request.committed,
                watch=self._watch,
            )
            if found.outcome in ("Resolved", "Finished"):
                self.enter(found.generation)
            return found

    def _write_log(self, log: WorkerLog) -> None:
        run = self._run()
        api.write_log(run, log)
        if log.slot == 0:
            api.forget_logs(run, attempt=log.attempt)

    def _commit(self, checkpoint: CheckpointId) -> Manifest | None:
        run = self._run()
        manifest = api.commit_if_complete(run, attempt=checkpoint.attempt, step=checkpoint.step)
        if manifest is not None:
            api.check_fence(run, checkpoint)
        return manifest

    def _write_part(
        self,
        checkpoint: CheckpointId,
        workers: int,
        directories: Mapping[int, Path],
        metrics: Mapping[str, object],
        metadata: Mapping[str, object],
        *,
        whole: bool,
        upload: Upload,
    ) -> Manifest | None:
        files = [
            file
            for rank, directory in sorted(directories.items())
            for file in api.scan(directory, rank=rank)
        ]
        run = self._run()
        manifest = api.write_part(
            run,
            attempt=checkpoint.attempt,
            step=checkpoint.step,
            worker=self._config.slot,
            workers=workers,
            files=files,
            metrics=metrics,
            metadata=metadata,
            whole=whole,
            upload=upload,
        )
        if manifest is not None:
            api.check_fence(run, checkpoint)
        return manifest


def _directory(files: FilesOnNode, source: PeerSource | None) -> Path:
    if source is None:
        return files.directory()
    with contextlib.closing(Copying(source, files.name)) as copying:
        return files.directory(copy=copying.copy)
