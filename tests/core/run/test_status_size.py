"""The status stays under 20 KiB, whatever the gang and however long its story."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import BEGIN, WorkerObservation, a_run, an_incident
from tests.support.levels import examples
from trainrun.contract.agent_state import Problem
from trainrun_operator.api.run.status import (
    Condition,
    Placement,
    StartRecord,
    TrainRunStatus,
    json_size,
)
from trainrun_operator.api.run.status_parts import (
    MAX_LEAVING,
    Cause,
    CheckpointStatus,
    PostedProgress,
    SaveAsked,
)
from trainrun_operator.core.run.boundary import Refused
from trainrun_operator.core.run.display import LASTING
from trainrun_operator.core.run.status_size import CUTS, LIMIT, cut, fitted
from trainrun_operator.core.run.times import STAGES

PROMISED = 20 * 1024
REPLICAS = 1024
ATTEMPT = 99_999
"""More restarts than a run of so many workers will ever have."""

TEXTS = ("x" * 3000, "\x1b[0m\n" * 700, "ü€\"'\\" * 500)
"""What training processes print: plain, full of escapes, and not ASCII."""


def an_old_run(text: str, *, replicas: int = REPLICAS) -> WorkerObservation:
    """A run of many workers with everything that a status can hold."""
    scene = a_run(replicas=replicas, name="n" * 48, max_failures=-1).with_config(
        checkpoints_uri=f"s3://{'b' * 1000}/{'r' * 48}/checkpoints"
    )
    record = StartRecord(
        attempt=ATTEMPT,
        roster=tuple(ATTEMPT - slot % 2 for slot in range(replicas)),
        agents="abcd" * replicas,
        world_size=64 * replicas,
        master_addr="a" * 253,
        master_port=65535,
        template_hash="0123456789ab",
        run_id="r" * 32,
        time=BEGIN,
    )
    worst = {
        "slot": replicas - 1,
        "rank": 64 * replicas,
        "worker": f"{'n' * 48}-1023-{ATTEMPT}",
        "node": "n" * 253,
        "exit_code": 255,
        "message": text[:1000],
        "last_lines": tuple(text[:400] for _ in range(5)),
        "detect_seconds": 12345.678,
        "recovery_seconds": 12345.678,
        "restart_seconds": 12345.678,
        "lost_steps": 999_999_999,
    }
    stages = dict.fromkeys(STAGES, 12345.678)
    incidents = tuple(
        an_incident(Cause.CHECKPOINT_DAMAGED, attempt=ATTEMPT - 10 + number, **worst)
        for number in range(10)
    )
    incidents = (*incidents[:-1], replace(incidents[-1], stages=stages, warm=64 * replicas))
    conditions = tuple(
        Condition(
            type=kind,
            status="False",
            reason="StorageMisconfigured",
            message=text[:2000],
            last_transition_time=BEGIN,
            observed_generation=999_999,
        )
        for kind in sorted(LASTING)
        if kind not in ("Complete", "Failed", "Stalled")  # at most one of Reconciling and Stalled
    )
    return scene.with_status(
        attempt=ATTEMPT,
        start_record=record,
        incidents=incidents,
        conditions=conditions,
        checkpoint=CheckpointStatus(
            uri=f"{scene.config.checkpoints_uri}/step-999999999-attempt-99999",
            step=999_999_999,
            attempt=ATTEMPT,
            time=BEGIN,
            size_bytes=10**15,
        ),
    )


def with_loud_workers(scene: WorkerObservation, text: str) -> WorkerObservation:
    """Everybody has many metrics and kinds of trouble."""
    metrics: dict[str, object] = {f"{i:02d}{text[:80]}": text for i in range(100)}
    trouble = tuple(Problem(type=f"T{i:063d}", reason="r" * 90, message=text) for i in range(20))
    running = a_run(replicas=2).running().with_all(metrics=metrics, problems=trouble)
    workers = tuple(
        replace(
            worker,
            created_for=ATTEMPT - worker.slot % 2,
            agent=replace(
                worker.agent,
                agent="abcdef",
                attempt=ATTEMPT,
                steps=(999_999_999,),
            ),
        )
        for worker in running.workers
        if worker.agent is not None
    )
    return replace(scene, workers=workers)


def running(text: str) -> WorkerObservation:
    leaving = tuple(range(960, 960 + MAX_LEAVING))
    asked = SaveAsked(
        attempt=ATTEMPT, reason=text[:128], time=BEGIN, writer_rank=65535, leaving=leaving
    )
    return an_old_run(text).with_status(save_asked=asked)


def ended(text: str) -> WorkerObservation:
    scene = an_old_run(text)
    incident = replace(scene.status.incidents[0], attempt=ATTEMPT)
    held = Placement(tries=999, not_before=BEGIN)
    flush = tuple(999_999_900 + number for number in range(64))
    scene = scene.with_status(placement=held, incidents=scene.status.incidents[1:])
    return scene.ended_with(incident, flush=flush, not_before=BEGIN)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:5]))
@pytest.mark.parametrize("stage", [running, ended])
@pytest.mark.slow
def test_the_largest_status_stays_below_20_kib_for_its_whole_life(stage, text: str) -> None:  # type: ignore[no-untyped-def]
    scene = with_loud_workers(stage(text), text)
    for _ in range(4):
        plan = scene.plan
        assert json_size(plan.status) < PROMISED
        refused = Refused(
            slot=7, name="run-7-1", reason="Forbidden", message=text, since=BEGIN - BEGIN
        )
        assert json_size(scene.refusing(refused).plan.status) < PROMISED
        scene = scene.after(plan, passed=60)


def test_a_status_that_fits_is_left_alone() -> None:
    status = an_old_run("short", replicas=4).status
    assert fitted(status) is status


def test_what_decisions_need_is_never_cut() -> None:
    before = ended(TEXTS[0]).status
    after = fitted(before)
    assert json_size(after) <= LIMIT < json_size(before)
    for field in ("attempt", "start_record", "ending", "placement", "failures", "fruitless"):
        assert getattr(after, field) == getattr(before, field), field
    assert after.incident is not None
    assert after.incidents[-1].attempt == before.incidents[-1].attempt
    # New workers are kept away from it: half a name would be refused, and their pods with it.
    assert (after.incident.node, after.incidents[-1].node) == ("n" * 253, "n" * 253)
    assert {c.type for c in after.conditions} == {c.type for c in before.conditions}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:5]))
def test_what_was_posted_finds_room_in_the_largest_status(text: str) -> None:
    posted = PostedProgress(
        text=f"{2**53}/{2**53}",
        step=2**53,
        total_steps=2**53,
        percent=100,
        metrics={f"{i:064d}": "x" * 64 for i in range(32)},
        remaining_seconds=10**10,
        time=BEGIN,
    )
    status = fitted(an_old_run(text).with_status(posted=posted).status)
    assert json_size(status) <= LIMIT
    assert status.posted == replace(posted, metrics={})


def test_what_decisions_need_is_not_cut_even_where_that_alone_is_too_large() -> None:
    before = an_old_run(TEXTS[0], replicas=2 * REPLICAS).status
    after = fitted(before)
    assert json_size(after) > LIMIT
    assert after.start_record == before.start_record
    assert (len(after.incidents), after.incidents[0].last_lines) == (1, ())


def test_old_incidents_lose_their_words_first() -> None:
    status = an_old_run("w" * 300, replicas=250).status
    after = fitted(status)
    assert len(after.incidents) == 10
    assert after.incidents[0].message == f"{'w' * 97}…"
    assert after.incidents[-1].message == "w" * 300


def test_the_newest_lines_that_fit_are_kept() -> None:
    lines = tuple(f"{number} " + "x" * 200 for number in range(9))
    status = (
        an_old_run("w" * 2000, replicas=4)
        .with_status(incident=an_incident(last_lines=lines))
        .status
    )
    after = fitted(status)
    assert after.incident is not None
    assert after.incident.last_lines == lines[-2:]


def test_cutting_again_changes_nothing() -> None:
    once = fitted(ended(TEXTS[1]).status)
    assert fitted(once) == once


def test_a_run_without_a_checkpoint_fits_as_well() -> None:
    status = ended(TEXTS[1]).with_status(checkpoint=None).status
    assert json_size(fitted(status)) <= LIMIT
    assert CUTS[-1](status).checkpoint is None


@settings(max_examples=examples(200), deadline=None)
@given(text=st.text(), limit=st.integers(3, 100))
def test_a_cut_text_takes_no_more_room_as_json_than_it_may(text: str, limit: int) -> None:
    room = json_size(TrainRunStatus(reason=""))
    assert json_size(TrainRunStatus(reason=cut(text, limit)[:64])) <= room + limit + 12
