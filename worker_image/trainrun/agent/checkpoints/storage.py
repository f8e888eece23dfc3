"""The run's object storage for the agent: every call runs in a thread, none in the event loop.

Layer: agent, over `trainrun.checkpoint`; downloads to this node are in `downloads`. The rest of the
agent reads and writes the store only through this module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainrun._common import writer_processes
from trainrun.agent.checkpoints.downloads import Downloads
from trainrun.agent.checkpoints.opened_store import OpenedStore
from trainrun.agent.checkpoints.staged import Step
from trainrun.agent.checkpoints.tasks import TaskStore
from trainrun.agent.processes.environment import remove_folder
from trainrun.checkpoint import (
    agent_records,
    choice,
    description,
    logs,
    ownership,
    reader,
    resolution,
    retention,
    writer,
)
from trainrun.checkpoint.logs import WorkerLog
from trainrun.checkpoint.ownership import BeatWatch
from trainrun.checkpoint.records import (
    DoneMarker,
    HangRecord,
    Manifest,
    StoryRecord,
    VoteRecord,
)
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.selection import Score
from trainrun.checkpoint.writer import LocalFile, Upload
from trainrun.contract.agent_config import AgentConfig
from trainrun.contract.agent_state import Resolution
from trainrun.contract.answer import OpenStep, Recheck, ResolveRequest, SaveOrder
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import EvidenceRequest
from trainrun.errors import CheckpointUnfinished, StoreError


class AsyncRunStore(OpenedStore):
    """The store of one run. Every method raises what `trainrun.checkpoint` documents."""

    def __init__(
        self, config: AgentConfig, *, bring_client: Callable[[str], None] | None = None
    ) -> None:
        """`bring_client`: see `OpenedStore`."""
        super().__init__(config, bring_client=bring_client)
        self.settings = config.settings
        """For retention; may be changed."""
        self.downloads = Downloads(self)
        self.tasks = TaskStore(self)
        self._watch: BeatWatch | None = None
        # A beat or a claim under way would undo a release that follows it.
        self._beating = threading.Lock()
        self._claiming = threading.Lock()

    def enter(self, generation: int) -> None:
        """Use this generation of the run's folder; 0: unknown, changes nothing."""
        if generation:
            self.generation = generation

    async def warm_up(self) -> None:
        """Load the client and connect, for later calls."""
        try:
            await self.on_run(RunStore.attempts)
        except StoreError:
            pass  # later calls fail in the same way and report it where it matters

    async def resolve(self, request: ResolveRequest) -> Resolution:
        """Claim the resume point of an attempt, or read it; store errors become outcomes."""
        try:
            await self.call(self.run)
        except StoreError as error:  # the client for this kind of store is not installed
            return resolution.refused(request, error)
        if request.proof:
            return await self.on_run(resolution.prove, request)
        return await self.call(self._resolve, request)

    async def write_part(
        self,
        checkpoint: CheckpointId,
        part: Step,
        *,
        workers: int,
        upload: Upload,
        described: DoneMarker | None = None,
        worker: int | None = None,
    ) -> Manifest | None:
        """Upload this worker's `part` of a checkpoint, its done marker (or manifest) last; or that
        of another `worker`, which is lost.

        Raises CheckpointUnfinished if the files of a rank have changed digests by then, or are not
        those that were `described`.
        """

        def write() -> Manifest | None:
            scanned, run = scanned_files(part), self.run()
            manifest = writer.write_part(
                run,
                attempt=checkpoint.attempt,
                step=checkpoint.step,
                worker=self.config.slot if worker is None else worker,
                workers=workers,
                files=scanned,
                metrics=part.metrics,
                metadata=part.metadata,
                whole=part.whole,
                unchanged=lambda: check_unchanged(part, upload),
                upload=upload,
                described=described,
            )
            if manifest is not None:
                writer.check_fence(run, checkpoint)
            return manifest

        return await self.call(write)

    async def sum_ahead(self, part: Step, upload: Upload) -> None:
        """See `description.sum_ahead`."""
        await self.call(lambda: description.sum_ahead(scanned_files(part), upload))

    async def describe_part(
        self, checkpoint: CheckpointId, part: Step, *, workers: int, upload: Upload
    ) -> DoneMarker:
        """Sum the files of this worker's `part` and describe it; raises as `write_part`."""

        def describe() -> DoneMarker:
            run = self.run()
            marker = description.describe_part(
                run,
                checkpoint,
                worker=self.config.slot,
                workers=workers,
                files=scanned_files(part),
                metrics=part.metrics,
                metadata=part.metadata,
                unchanged=lambda: check_unchanged(part, upload),
                upload=upload,
            )
            slot, directories = self.config.slot, part.files
            reader.link_on_node(
                run, checkpoint, slot, marker.files, directories, cache_dir=self.cache
            )
            return marker

        return await self.call(describe)

    async def commit(self, checkpoint: CheckpointId) -> Manifest | None:
        """Write the manifest if every worker's part is stored. Raises CheckpointFenced."""
        return await self.call(self._commit, checkpoint)

    async def retain(self, attempt: int) -> None:
        """Delete what retention allows."""
        now = self.settings
        score = Score(metric=now.score_metric, order=now.score_order) if now.score_metric else None
        await self.on_run(retention.retain, attempt=attempt, keep=now.keep, score=score)

    async def open_steps(self, attempt: int) -> tuple[OpenStep, ...]:
        """Steps of an attempt that have files and no commit."""
        return await self.on_run(writer.open_steps, attempt=attempt)

    async def set_aside(self, checkpoint: CheckpointId, reason: str) -> None:
        """Never resume from this checkpoint again."""
        await self.on_run(writer.set_aside, checkpoint, reason)

    async def listed_damage(self, checkpoint: CheckpointId) -> str:
        """Damage to a checkpoint that the listing shows; empty: none."""
        return await self.on_run(choice.listed_damage, checkpoint)

    async def is_set_aside(self, checkpoint: CheckpointId) -> bool:
        """Whether no attempt may resume from it."""
        return await self.on_run(RunStore.is_bad, checkpoint)

    async def read_again(self, order: Recheck) -> None:
        """Read some files of a checkpoint from the store, ignoring this node's copies."""
        await self.on_run(reader.read_again, order.id, order.files, scratch=self.cache)

    async def beat(self, counter: int, committed: CheckpointId | None) -> bool:
        """Write the owner's beat; False if this run does not own the storage."""
        return await self.call(self._beat, counter, committed)

    async def owner(self) -> str:
        """Uid of the TrainRun that claimed the storage last; empty: none."""
        return await self.on_run(ownership.owner_uid)

    async def newest_attempt(self) -> int:
        """The highest attempt that was claimed, 0 before the first."""
        return max(await self.on_run(RunStore.attempts), default=0)

    async def release(self) -> None:
        """Release the storage, so that the next owner need not wait."""
        await self.call(self._release)

    async def finish(self) -> None:
        """Record that the run has succeeded."""
        await self.on_run(writer.finish, uid=self.config.run_uid)

    async def write_log(self, log: WorkerLog) -> None:
        """Write the last lines of this worker's processes; slot 0 deletes those of old attempts."""
        await self.on_run(logs.write_log, log)

    async def write_story(self, number: int, chapter: Mapping[str, Any]) -> None:
        """Write a chapter of the run's story; never overwrites one."""
        config = self.config
        record = StoryRecord(
            number=number, uid=config.run_uid, run=config.run, chapter=dict(chapter)
        )
        await self.on_run(agent_records.write_story, record)

    async def write_hang(self, request: EvidenceRequest, ranks: Sequence[dict[str, Any]]) -> None:
        """Write the hang evidence of this worker's ranks; never overwrites any."""
        config = self.config
        record = HangRecord(
            attempt=request.attempt,
            number=request.number,
            worker=config.slot,
            node=config.node,
            ranks=tuple(ranks),
        )
        await self.on_run(agent_records.write_hang, record)

    async def write_vote(
        self, attempt: int, call: int, *, agrees: bool, asked: SaveOrder | None
    ) -> None:
        """Publish to the other agents whether this worker saves at a call of `should_save()`."""
        slot = self.config.slot
        vote_record = VoteRecord(attempt=attempt, call=call, slot=slot, agrees=agrees, asked=asked)
        await self.on_run(agent_records.write_vote, vote_record)

    async def stored_votes(self, attempt: int) -> Mapping[int, Mapping[int, bool]]:
        """The votes that the workers of an attempt have published, by call and slot."""
        return await self.on_run(agent_records.read_votes, attempt)

    async def asked_to_save(
        self, attempt: int, call: int, votes_by_slot: Mapping[int, bool]
    ) -> SaveOrder | None:
        """The save order behind a call, as other workers have published it."""
        return await self.on_run(agent_records.asked_to_save, attempt, call, votes_by_slot)

    async def keep(
        self, checkpoint: CheckpointId, part: Step, upload: Upload, *, in_use: CheckpointId | None
    ) -> None:
        """Move the files of a stored part into this node's cache, and delete the rest.

        `in_use`: what the attempt resumed from.
        """

        def move() -> None:
            reader.keep_on_node(
                self.run(),
                checkpoint,
                self.config.slot,
                tuple(upload.arrived.values()),
                part.files,
                cache_dir=self.cache,
                in_use=in_use,
            )

        await self.call(move)
        await self.remove([*part.files.values()])

    async def remove(self, directories: list[Path]) -> None:
        """Delete local directories; may take long for large checkpoints."""
        for directory in directories:
            await self.call(remove_folder, directory)

    def close(self) -> None:
        """Take no more calls; abandon those under way."""
        self.tasks.close()
        super().close()

    def _beat(self, counter: int, committed: CheckpointId | None) -> bool:
        with self._beating:
            uid = self.config.run_uid
            return ownership.beat(self.run(), uid=uid, counter=counter, committed=committed)

    def _release(self) -> None:
        with self._claiming, self._beating:
            ownership.release(self.run(), uid=self.config.run_uid)

    def _resolve(self, request: ResolveRequest) -> Resolution:
        if self._watch is None:
            self._watch = BeatWatch()
        with self._claiming:
            found = resolution.resolve(
                self.run(),
                request,
                uid=self.config.run_uid,
                generation=self.generation,
                watch=self._watch,
                params=self.config.params,
            )
            if found.outcome in ("Resolved", "Finished"):
                self.enter(found.generation)
            return found

    def _commit(self, checkpoint: CheckpointId) -> Manifest | None:
        run = self.run()
        manifest = writer.commit_if_complete(run, attempt=checkpoint.attempt, step=checkpoint.step)
        if manifest is not None:
            writer.check_fence(run, checkpoint)
        return manifest


def scanned_files(part: Step) -> list[LocalFile]:
    """What the ranks of a worker have staged. Raises as `writer.scan`."""
    return [
        file
        for rank, directory in sorted(part.files.items())
        for file in writer.scan(directory, rank=rank)
    ]


def check_unchanged(part: Step, upload: Upload) -> None:
    """Raises CheckpointUnfinished if files are not those that were reported, and TransferCancelled
    if the upload was given up."""
    try:
        changed = [
            rank
            for rank, digest in part.digests.items()
            if writer_processes.digest(writer_processes.look(part.files[rank])) != digest
        ]
    finally:
        upload.advance(0)  # raises if the upload was given up: its files are being deleted
    if changed:
        raise CheckpointUnfinished(
            f"the files of rank {changed[0]} for step {part.step} changed after they were "
            f"reported, so they are not committed. {writer_processes.REMEDY}"
        )
