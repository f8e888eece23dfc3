"""The run's object storage as the agent uses it: every call in a thread, none in the event loop.

Layer: agent, over `trainrun.checkpoint`; what comes from there to this node is in `downloads`. No
other module of the agent reads or writes there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainrun._common import writing
from trainrun.agent.checkpoints.downloads import Downloads
from trainrun.agent.checkpoints.opened_store import OpenedStore
from trainrun.agent.checkpoints.tasks import TaskStore
from trainrun.agent.processes.environment import remove_folder
from trainrun.checkpoint import (
    choice,
    logs,
    notes,
    ownership,
    reader,
    resolution,
    retention,
    writer,
)
from trainrun.checkpoint.logs import WorkerLog
from trainrun.checkpoint.metrics_log import MetricsLog
from trainrun.checkpoint.ownership import BeatWatch
from trainrun.checkpoint.records import Ballot, HangRecord, Manifest, StoryRecord
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.selection import Score
from trainrun.checkpoint.writer import Upload
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.agent_state import Resolution
from trainrun.contract.answer import OpenStep, Recheck, ResolveRequest, SaveOrder
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import EvidenceRequest
from trainrun.errors import CheckpointUnfinished, StoreError


class AsyncRunStore:
    """The store of one run. Every method raises what `trainrun.checkpoint` documents."""

    def __init__(
        self, config: AgentConfig, *, bring_boto3: Callable[[], None] | None = None
    ) -> None:
        """`bring_boto3`: as `OpenedStore` has it."""
        self._config = config
        self.settings = config.settings
        """What retention goes by; may be changed."""
        self._store = OpenedStore(config, bring_boto3=bring_boto3)
        self.downloads = Downloads(self._store)
        self.tasks = TaskStore(self._store)
        self._watch: BeatWatch | None = None
        self._metrics: dict[int, MetricsLog] = {}
        """That of the attempt which has written last."""
        # A beat or a claim under way would take back the release that came after it.
        self._beating = threading.Lock()
        self._claiming = threading.Lock()

    @property
    def generation(self) -> int:
        """Of the run's folder: that in which everything is; 0: not known."""
        return self._store.generation

    def enter(self, generation: int) -> None:
        """Everything is in this generation of the run's folder; 0: that is not known."""
        if generation:
            self._store.generation = generation

    async def warm_up(self) -> None:
        """Load and connect what later calls need."""
        try:
            await self._store.on_run(RunStore.attempts)
        except StoreError:
            pass  # later calls meet it again, and report it where it matters

    async def resolve(self, request: ResolveRequest) -> Resolution:
        """Claim the resume point of an attempt, or read it; trouble with the store is an
        outcome."""
        return await self._store.call(self._prove if request.proof else self._resolve, request)

    async def write_part(
        self,
        checkpoint: CheckpointId,
        *,
        workers: int,
        files: Mapping[int, Path],
        metrics: Mapping[str, object],
        metadata: Mapping[str, object],
        whole: bool,
        digests: Mapping[int, int],
        upload: Upload,
    ) -> Manifest | None:
        """Upload this worker's part of a checkpoint, its done marker (or manifest) last.

        Raises CheckpointUnfinished where the files of a rank have other `digests` then.
        """

        def write() -> Manifest | None:
            scanned = [
                file
                for rank, directory in sorted(files.items())
                for file in writer.scan(directory, rank=rank)
            ]
            run = self._store.run()
            manifest = writer.write_part(
                run,
                attempt=checkpoint.attempt,
                step=checkpoint.step,
                worker=self._config.slot,
                workers=workers,
                files=scanned,
                metrics=metrics,
                metadata=metadata,
                whole=whole,
                unchanged=lambda: _check_unchanged(checkpoint.step, files, digests, upload),
                upload=upload,
            )
            if manifest is not None:
                writer.check_fence(run, checkpoint)
            return manifest

        return await self._store.call(write)

    async def commit(self, checkpoint: CheckpointId) -> Manifest | None:
        """Write the manifest if every worker's part is there. Raises CheckpointFenced."""
        return await self._store.call(self._commit, checkpoint)

    async def retain(self, attempt: int) -> None:
        """Delete what retention allows."""
        now = self.settings
        score = Score(metric=now.score_metric, order=now.score_order) if now.score_metric else None
        await self._store.on_run(retention.retain, attempt=attempt, keep=now.keep, score=score)

    async def open_steps(self, attempt: int) -> tuple[OpenStep, ...]:
        """Steps of an attempt that were begun and are not committed."""
        return await self._store.on_run(writer.open_steps, attempt=attempt)

    async def set_aside(self, checkpoint: CheckpointId, reason: str) -> None:
        """Never resume from this checkpoint again."""
        await self._store.on_run(writer.set_aside, checkpoint, reason)

    async def shown_damage(self, checkpoint: CheckpointId) -> str:
        """What the listing shows to be wrong with a checkpoint; empty: nothing."""
        return await self._store.on_run(choice.shown_damage, checkpoint)

    async def is_set_aside(self, checkpoint: CheckpointId) -> bool:
        """Whether it is never to be resumed from again."""
        return await self._store.on_run(RunStore.is_bad, checkpoint)

    async def read_again(self, order: Recheck) -> None:
        """Read some files of a checkpoint, whatever this node has already."""
        await self._store.on_run(
            reader.read_again, order.id, order.files, scratch=self._store.cache
        )

    async def beat(self, counter: int, committed: CheckpointId | None) -> bool:
        """Show that the owner lives; False when the storage is not ours (any more)."""
        return await self._store.call(self._beat, counter, committed)

    async def owner(self) -> str:
        """Uid of the TrainRun that has claimed the storage last; empty where nobody has."""
        return await self._store.on_run(ownership.owner_uid)

    async def newest_attempt(self) -> int:
        """The highest attempt that was claimed, 0 before the first."""
        return max(await self._store.on_run(RunStore.attempts), default=0)

    async def release(self) -> None:
        """Give the storage up, so that the next owner need not wait."""
        await self._store.call(self._release)

    async def finish(self) -> None:
        """Record that the run has succeeded."""
        await self._store.on_run(writer.finish, uid=self._config.run_uid)

    async def write_metrics(self, attempt: int, records: Sequence[Mapping[str, object]]) -> None:
        """Write the next piece of an attempt's metrics."""
        await self._store.call(self._write_metrics, attempt, records)

    async def write_log(self, log: WorkerLog) -> None:
        """Write the last lines of this worker's processes; slot 0 forgets those of old attempts."""
        await self._store.call(self._write_log, log)

    async def write_story(self, number: int, chapter: Mapping[str, Any]) -> None:
        """Write a chapter of the run's story; one that stands there stays."""
        config = self._config
        record = StoryRecord(
            number=number, uid=config.run_uid, run=config.run, chapter=dict(chapter)
        )
        await self._store.on_run(notes.write_story, record)

    async def write_hang(self, request: EvidenceRequest, ranks: Sequence[dict[str, Any]]) -> None:
        """Write where the ranks of this worker stand; what stands there already stays."""
        config = self._config
        record = HangRecord(
            attempt=request.attempt,
            number=request.number,
            worker=config.slot,
            node=config.node,
            ranks=tuple(ranks),
        )
        await self._store.on_run(notes.write_hang, record)

    async def cast_ballot(
        self, attempt: int, call: int, *, agrees: bool, asked: SaveOrder | None
    ) -> None:
        """Tell the other agents whether this worker saves at a call of `should_save()`."""
        slot = self._config.slot
        ballot = Ballot(attempt=attempt, call=call, slot=slot, agrees=agrees, asked=asked)
        await self._store.on_run(notes.cast_ballot, ballot)

    async def ballots(self, attempt: int) -> Mapping[int, Mapping[int, bool]]:
        """What the workers of an attempt have told each other, by call and slot."""
        return await self._store.on_run(notes.read_ballots, attempt)

    async def asked_to_save(
        self, attempt: int, call: int, said: Mapping[int, bool]
    ) -> SaveOrder | None:
        """What asked for a call, as others have written it."""
        return await self._store.on_run(notes.asked_to_save, attempt, call, said)

    async def remove(self, directories: list[Path]) -> None:
        """Delete local directories, which may take long for large checkpoints."""
        for directory in directories:
            await self._store.call(remove_folder, directory)

    def close(self) -> None:
        """Take no more calls; those under way are left behind."""
        self.tasks.close()
        self._store.close()

    def _beat(self, counter: int, committed: CheckpointId | None) -> bool:
        with self._beating:
            uid = self._config.run_uid
            return ownership.beat(self._store.run(), uid=uid, counter=counter, committed=committed)

    def _release(self) -> None:
        with self._claiming, self._beating:
            ownership.release(self._store.run(), uid=self._config.run_uid)

    def _write_metrics(self, attempt: int, records: Sequence[Mapping[str, object]]) -> None:
        log = self._metrics.get(attempt)
        if log is None:
            log = MetricsLog(self._store.run(), attempt=attempt)
            # The one before may still be writing its last piece.
            before = max(self._metrics, default=attempt)
            self._metrics = {n: it for n, it in self._metrics.items() if n == before}
            self._metrics[attempt] = log
        log.write(records)

    def _resolve(self, request: ResolveRequest) -> Resolution:
        if self._watch is None:
            self._watch = BeatWatch()
        with self._claiming:
            found = resolution.resolve(
                self._store.run(),
                uid=self._config.run_uid,
                attempt=request.attempt,
                on_existing=request.on_existing,
                generation=self.generation,
                ended=request.ended,
                committed=request.committed,
                trial_of=request.trial_of,
                watch=self._watch,
                params=self._config.params,
                look=request.look,
            )
            if found.outcome in ("Resolved", "Finished"):
                self.enter(found.generation)
            return found

    def _prove(self, request: ResolveRequest) -> Resolution:
        return resolution.prove(self._store.run(), attempt=request.attempt, point=request.committed)

    def _write_log(self, log: WorkerLog) -> None:
        run = self._store.run()
        logs.write_log(run, log)
        if log.slot == 0:
            logs.forget_logs(run, attempt=log.attempt)

    def _commit(self, checkpoint: CheckpointId) -> Manifest | None:
        run = self._store.run()
        manifest = writer.commit_if_complete(run, attempt=checkpoint.attempt, step=checkpoint.step)
        if manifest is not None:
            writer.check_fence(run, checkpoint)
        return manifest


def _check_unchanged(
    step: int, directories: Mapping[int, Path], digests: Mapping[int, int], upload: Upload
) -> None:
    try:
        changed = [
            rank
            for rank, digest in digests.items()
            if writing.digest(writing.look(directories[rank])) != digest
        ]
    finally:
        upload.advance(0)  # where it was given up, its files are on their way out
    if changed:
        raise CheckpointUnfinished(
            f"the files of rank {changed[0]} for step {step} have changed since their report, so "
            f"they are not committed. {writing.REMEDY}"
        )
