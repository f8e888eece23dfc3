"""Builds the parts of an attempt.

Layer: agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainrun.agent.attempt import Attempt
from trainrun.agent.attempt_context import AttemptContext
from trainrun.agent.checkpoints.bringing import Bringing
from trainrun.agent.checkpoints.fetching import Fetching
from trainrun.agent.checkpoints.run_artifacts import MetricsQueue
from trainrun.agent.checkpoints.staged import StagedSteps, StagingCapacity
from trainrun.agent.checkpoints.tasks import TaskKeeping
from trainrun.agent.checkpoints.uploads import Uploads
from trainrun.agent.folder.keeping import NO_FOLDER, FolderCheckpoints
from trainrun.agent.output.reading import reading_of
from trainrun.agent.processes.group import ProcessGroup
from trainrun.agent.processes.launches import ranks_of
from trainrun.agent.training.posted_progress import ProgressServer
from trainrun.agent.training.step_clock import Asking, StepClock, TrainingProgress
from trainrun.agent.training.tally import Tally
from trainrun.agent.training.vote import Voter
from trainrun.contract.answer import RunSettings, Start
from trainrun.contract.local_files import CallGate


def put_together(start: Start, around: AttemptContext, settings: RunSettings) -> Attempt:
    """Build the parts of an attempt; `launch` starts them."""
    config = around.config
    ranks = ranks_of(config)
    files = {rank: around.folders.make(start.attempt, rank) for rank in ranks}
    processes = ProcessGroup(
        sink=around.sink,
        oom=around.oom,
        standby=around.standbys.take,
        standby_ended=around.standbys.reaped,
        standby_failed=around.standbys.failed,
    )
    shared = settings.folder is not None and start.workers > 1
    staged = StagedSteps(ranks, by_agent=shared)
    rooms = StagingCapacity(staged=staged, max_pending=config.settings.max_pending)

    gates = {rank: CallGate(paths.control_file) for rank, paths in files.items()}
    voter = Voter(
        files=gates,
        living=lambda: processes.living_ranks,
        news=around.news,
        ended_well=lambda: processes.ended_well,
    )

    def stored() -> None:
        rooms.wake()
        around.news()

    metrics = MetricsQueue(
        attempt=start.attempt, storage=around.storage, interval=config.metrics_interval
    )
    uploads = Uploads(
        attempt=start.attempt,
        slot=config.slot,
        workers=start.workers,
        staged=staged,
        storage=around.storage,
        news=stored,
        resume=start.resume,
        before_commit=metrics.write,
    )
    bringing = Bringing(
        staged=staged,
        rooms=rooms,
        uploads=uploads,
        folders={rank: paths.staging for rank, paths in files.items()},
        asked=voter.saved,
        news=around.news,
    )
    fetching = Fetching(
        storage=around.storage,
        resume=start.resume,
        initial=config.initial_from,
        news=around.news,
        source=start.source,
    )
    tasks = TaskKeeping(store=around.storage.tasks, attempt=start.attempt, news=around.news)

    report = TrainingProgress(ranks=ranks, resume=start.resume)

    def record(step: int, found: Mapping[str, object]) -> None:
        if config.slot == 0 and report.first_report is None:
            metrics.add(0, step, found)  # for curves, whichever rank printed it

    output = reading_of(settings, ranks, start.world_size, record=record, news=around.progress)
    processes.tap = output.tap

    folder = FolderCheckpoints(
        rule=settings.folder or NO_FOLDER,
        base=Path(config.working_dir).absolute(),
        memory=around.memory,
        start=start,
        bringing=bringing,
        fetching=fetching,
        processes=processes,
        output=output.progress,
        news=around.news,
    )
    return Attempt(
        start=start,
        ranks=ranks,
        around=around,
        processes=processes,
        staged=staged,
        rooms=rooms,
        voter=voter,
        tally=Tally(
            attempt=start.attempt,
            slot=config.slot,
            workers=start.workers,
            votes=voter,
            box=around.storage,
        ),
        uploads=uploads,
        bringing=bringing,
        fetching=fetching,
        tasks=tasks,
        clock=StepClock(
            excused=lambda: rooms.wait_for_store,
            away=lambda: any(part.problem is not None for part in (uploads, fetching, tasks)),
        ),
        report=report,
        metrics=metrics,
        asking=Asking(files=gates),
        posts=ProgressServer(files[ranks[0]].token_file, news=around.progress),
        output=output,
        folder=folder,
        _files=files,
    )
