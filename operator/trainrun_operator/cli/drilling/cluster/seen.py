"""What is known of a run of a drill in a cluster, when it is over.

Layer: cli; reads the run's storage with the user's own credentials.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.cli.drilling.course import Course
from trainrun_operator.cli.drilling.seeing import ending, failure, with_stored
from trainrun_operator.cli.finding import cluster_source
from trainrun_operator.core.run.stages.preempting import UNASKED

if TYPE_CHECKING:
    from trainrun_operator.api.run.story import Chapter
    from trainrun_operator.cli.drilling.cluster.sight import Sight
    from trainrun_operator.worlds.kubernetes.run_object import RunVersion


def course_of(version: RunVersion, sight: Sight, *, seconds: float) -> Course:
    """All of it. Raises StoreError."""
    config, status = version.config, version.status
    ranks = range(version.run.spec.workers.replicas * config.processes_per_worker)
    seen = Course(
        ending=ending(status, reached_it=sight.reached_it),
        world_size=len(ranks),
        seconds=seconds,
        committed=tuple(sorted(sight.committed)),
        listened=False,
        struck=sight.struck,
        failure=failure(status),
    )
    seen = with_stored(seen, cluster_source(version))
    attempts = frozenset(chapter.attempt for chapter in seen.chapters)
    return replace(
        seen,
        # Of all ranks the status tells one step.
        reported={
            chapter.attempt: dict.fromkeys(ranks, chapter.reached)
            for chapter in seen.chapters
            if chapter.reached is not None
        },
        sought=attempts,
        asked=attempts - {it.attempt for it in seen.chapters if _never_asked(it)},
        opened=frozenset(it.attempt for it in seen.chapters if it.rendezvous_seconds),
    )


def _never_asked(chapter: Chapter) -> bool:
    """Its end was told to be without a save since nobody called should_save()."""
    return any(UNASKED in note.message for note in chapter.notes)
