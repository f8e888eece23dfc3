"""Putting the parts of one attempt together.

Layer: agent, wiring.
"""

from __future__ import annotations

from trainrun.agent.attempt import Attempt, AttemptContext
from trainrun.agent.checkpoints.fetching import Fetching
from trainrun.agent.checkpoints.records import MetricsQueue
from trainrun.agent.checkpoints.staged import Rooms, StagedSteps
from trainrun.agent.checkpoints.tasks import TaskKeeping
from trainrun.agent.checkpoints.uploads import Uploads
from trainrun.agent.processes.group import ProcessGroup
from trainrun.agent.processes.launches import ranks_of
from trainrun.agent.training.posts import Posts
from trainrun.agent.training.step_clock import Asking, StepClock, TrainingProgress
from trainrun.agent.training.tally import Tally
from trainrun.agent.training.vote import Voter
from trainrun.contract.answer import Start
from trainrun.contract.local_files import CallGate


def build(start: Start, around: AttemptContext) -> Attempt:
    """Put the parts of an attempt together; `launch` brings them to life."""
    config = around.config
    ranks = ranks_of(config)
    files = {rank: around.folders.of_rank(start.attempt, rank) for rank in ranks}
    processes = ProcessGroup(
        sink=around.sink,
        oom=around.oom,
        standby=around.standbys.take,
        standby_ended=around.standbys.reaped,
        standby_failed=around.standbys.failed,
    )
    staged = StagedSteps(ranks)
    rooms = Rooms(staged=staged, max_pending=config.max_pending)

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

    metrics = (
        MetricsQueue(
            attempt=start.attempt, storage=around.storage, interval=config.metrics_interval
        )
        if config.slot == 0
        else None
    )
    uploads = Uploads(
        attempt=start.attempt,
        slot=config.slot,
        workers=start.workers,
        staged=staged,
        storage=around.storage,
        news=stored,
        before_commit=None if metrics is None else metrics.write,
    )
    fetching = Fetching(
        storage=around.storage,
        resume=start.resume,
        initial=config.initial_from,
        news=around.news,
        source=start.source,
    )
    tasks = TaskKeeping(store=around.storage.tasks, attempt=start.attempt, news=around.news)

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
        fetching=fetching,
        tasks=tasks,
        clock=StepClock(
            excused=lambda: rooms.wait_for_store,
            away=lambda: any(it.problem is not None for it in (uploads, fetching, tasks)),
        ),
        report=TrainingProgress(ranks=ranks, resume=start.resume),
        metrics=metrics,
        asking=Asking(files=gates),
        posts=Posts(files[0].token_file, news=around.progress) if config.slot == 0 else None,
        _files=files,
    )
