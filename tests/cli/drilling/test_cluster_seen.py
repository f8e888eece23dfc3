"""What is known of a run in a cluster, where a drill receives no heartbeats."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.api.spec_table import BASE
from tests.kube.patching import merged
from trainrun_operator.api.run.status import TrainRunStatus, json_object
from trainrun_operator.api.run.story import Chapter, Note
from trainrun_operator.cli.drilling.cluster_environment import drill_run_of
from trainrun_operator.cli.drilling.run_monitor import StatusPoller
from trainrun_operator.cli.drilling.runs import DrillRun
from trainrun_operator.core.run.stages.preempting import UNASKED
from trainrun_operator.worlds.kubernetes.run_object import run_version

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
LATER = BEGAN + timedelta(seconds=9)
FIRST = Chapter(
    number=1,
    attempt=1,
    begun=BEGAN,
    workers=2,
    reached=25,
    ended=LATER,
    closed=LATER,
    end="Incident",
)
SECOND = Chapter(number=2, attempt=2, begun=LATER, workers=2, rendezvous_seconds=0.2)


def seen(folder: Path, *chapters: Chapter) -> DrillRun:
    storage = folder / "runs"
    storage.mkdir()
    status = TrainRunStatus(phase="Running", attempt=2, story=chapters)
    raw: dict[str, Any] = merged(
        BASE,
        {
            "metadata": {"name": "own", "namespace": "team", "uid": "u"},
            "spec": {"workers": {"replicas": 2}, "storage": {"uri": storage.as_uri()}},
            "status": json_object(status),
        },
    )
    sight = StatusPoller(until=30, fault=None, goal_reached=True, committed={10})
    return drill_run_of(run_version(raw), sight, seconds=20)


def test_its_story_tells_how_far_attempts_came_and_which_of_them_opened_a_checkpoint(
    tmp_path: Path,
) -> None:
    drill_run = seen(tmp_path, FIRST, SECOND)
    assert (drill_run.ending, drill_run.world_size, drill_run.has_heartbeats) == (
        "Stopped",
        2,
        False,
    )
    assert drill_run.reported == {1: {0: 25, 1: 25}}
    assert drill_run.opened == {2}
    assert drill_run.committed == (10,)


def test_whether_should_save_was_never_asked_is_what_the_operator_told(tmp_path: Path) -> None:
    note = Note(time=LATER, reason="Preempted", message=f"attempt 1 ended: {UNASKED}: SIGTERM")
    assert seen(tmp_path, replace(FIRST, notes=(note,)), SECOND).asked == {2}
