"""What people see: timeline, live view, plain lines, numbers in words."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest
from rich.console import Console

from tests.runtime.states import a_state
from trainrun.contract.agent_state import Notice, ProcessExit
from trainrun_operator.api.run.status import Condition, TrainRunStatus
from trainrun_operator.api.run.status_parts import (
    Cause,
    CheckpointStatus,
    Ending,
    Incident,
    PostedProgress,
    Progress,
    Workers,
)
from trainrun_operator.cli import formatting
from trainrun_operator.cli.lines import JsonLines, PlainLines, Timeline
from trainrun_operator.cli.live import LiveView
from trainrun_operator.cli.report.terminal import lines as report_lines
from trainrun_operator.cli.status import report_of
from trainrun_operator.core.run.boundary import Event, Plan, WorkerFact, WorkerLoss
from trainrun_operator.runtime.line_writers import BlockingWriter
from trainrun_operator.runtime.run_events import Output, PassEnded, RunEvent

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOST = WorkerLoss(cause=Cause.NODE_LOST, message="gone")
STATUS = TrainRunStatus(
    attempt=1,
    phase="Running",
    progress=Progress(step=12, metrics={"loss": 0.25, "odd": {"float": "NaN"}}),
)


def a_worker(slot: int = 0, **fields: Any) -> WorkerFact:
    defaults: dict[str, Any] = {
        "name": f"run-{slot}-1",
        "slot": slot,
        "created_for": 1,
        "template_hash": "t",
        "silent_for": timedelta(0),
    }
    return WorkerFact(**(defaults | {"phase": "Running"} | fields))


def running(slot: int = 0, **fields: Any) -> WorkerFact:
    state = a_state(f"run-{slot}-1", slot=slot, phase="Running", attempt=1, **fields)
    return a_worker(slot, agent=state)


def passed(*workers: WorkerFact, status: TrainRunStatus = STATUS) -> PassEnded:
    plan = Plan(reason="Running", message="attempt 1 is running", status=status)
    return PassEnded(time=NOW, plan=plan, workers=workers)


@pytest.mark.parametrize(
    ("worker", "state"),
    [
        (a_worker(), "absent"),
        (a_worker(agent=a_state()), "waiting"),
        (running(), "starting"),
        (running(spawned=59.0), "starting"),
        (running(spawned=60.0), "training"),
        (running(steps=(3,)), "training"),
        (running(steps=(3,), notice=Notice(reason="SIGTERM")), "leaving"),
        (running(exits=(ProcessExit(rank=0, code=0),)), "done"),
        (running(exits=(ProcessExit(rank=0, signal=9),)), "dead"),
        (running(exits=(ProcessExit(rank=0, signal=9, ordered=True),)), "waiting"),
        (a_worker(phase="Ended", exit_code=0), "done"),
        (a_worker(phase="Ended", exit_code=137), "dead"),
        (a_worker(phase="Ended", exit_code=0, loss=LOST), "dead"),
    ],
)
def test_the_state_of_a_rank_in_a_word(worker: WorkerFact, state: str) -> None:
    assert formatting.rank_states(worker, status=TrainRunStatus(attempt=1), per_worker=1) == [state]


@pytest.mark.parametrize("slot", [0, 1])
def test_ranks_train_once_their_framework_has_posted(slot: int) -> None:
    """They were shown as starting in their first minute, beside a step that grew."""
    status = TrainRunStatus(attempt=1, posted=PostedProgress(text="3/50", step=3, time=NOW))
    worker = running(slot, spawned=5.0)
    assert formatting.rank_states(worker, status=status, per_worker=2) == ["training"] * 2
    assert formatting.rank_states(worker, status=STATUS, per_worker=1) == ["starting"]


def test_a_rank_that_loads_for_long_starts_where_steps_are_reported() -> None:
    saved = CheckpointStatus(step=3, attempt=1, uri="file:///x", size_bytes=1, time=NOW)
    status = TrainRunStatus(attempt=1, checkpoint=saved)
    assert formatting.rank_states(running(spawned=90.0), status=status, per_worker=1) == [
        "starting"
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0214, "21 ms"), (3.42, "3.4 s"), (75.2, "75 s"), (720.0, "12 min")],
)
def test_seconds_in_words(value: float | None, text: str) -> None:
    assert formatting.seconds(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (151_000, "151 kB"), (7_300_000_000, "7.3 GB")],
)
def test_sizes_in_words(count: int, text: str) -> None:
    assert formatting.size(count) == text


def test_metrics_in_words_keep_what_json_has_no_number_for() -> None:
    assert formatting.metrics(STATUS.progress.metrics) == "loss=0.25 odd=NaN"


def test_the_timeline_draws_each_rank_over_the_whole_time() -> None:
    now = 0.0
    timeline = Timeline(replicas=2, per_worker=1, clock=lambda: now)
    for moment, first, second in (
        (0.0, running(0), running(1)),
        (2.0, running(0, steps=(1,)), running(1, steps=(1,))),
        (6.0, running(0, steps=(5,)), running(1, exits=(ProcessExit(rank=1, signal=9),))),
        (7.0, running(0), running(1)),
        (10.0, a_worker(0, phase="Ended", exit_code=0), running(1, steps=(1,))),
    ):
        now = moment
        timeline.emit(passed(first, second))
    now = 12.0
    first_row, second_row, ruler, legend = timeline.draw(width=12)
    assert first_row == "rank 0   |ss=====sss✓✓|"
    assert second_row == "rank 1   |ss====xsss==|"
    assert ruler.endswith("12 s")
    assert "x lost" in legend


def test_the_live_view_shows_phase_ranks_metrics_checkpoint_budget_events_and_output() -> None:
    console = Console(file=io.StringIO(), width=110, color_system=None)
    timeline = Timeline(replicas=2, per_worker=1)
    view = LiveView(console, name="digits", timeline=timeline, per_worker=1)
    saved = CheckpointStatus(uri="file:///c", step=10, attempt=1, time=NOW, size_bytes=2048)
    news = passed(running(0, steps=(12,)), running(1), status=replace(STATUS, checkpoint=saved))
    timeline.emit(news)
    view.remember(news)
    view.remember(RunEvent(time=NOW, event=Event(type="Warning", reason="NodeLost", message="m")))
    view.remember(Output(worker="run-0-1", line="[rank 0] epoch 1"))
    view.remember(Output(worker="run-0-1", line="[agent] INFO order: Hold"))
    console.print(view.render())
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert " digits  Running  attempt 1 " in shown
    assert "step 12   loss=0.25 odd=NaN" in shown
    assert "checkpoint step 10 (attempt 1, 2.0 kB)" in shown
    assert "rank 0  training  step 12" in shown
    assert "rank 1  starting" in shown
    assert "NodeLost m" in shown
    assert "[rank 0] epoch 1" in shown
    assert "order: Hold" not in shown


def test_output_that_clears_the_screen_leaves_the_live_view_alone() -> None:
    assert formatting.printable("\x1b[2J\x1b[5;5H\x1b[31mred\x1b[0m\a 日本\tx\x00") == "red 日本  x"
    assert formatting.printable("\x1b]0;title\x07text\x1b(B\x1b[m") == "text"


def test_a_low_terminal_shows_the_newest_lines_of_output() -> None:
    console = Console(file=io.StringIO(), width=80, height=14, color_system=None)
    timeline = Timeline(replicas=2, per_worker=1)
    view = LiveView(console, name="digits", timeline=timeline, per_worker=1)
    news = passed(running(0), running(1))
    timeline.emit(news)
    view.remember(news)
    for number in range(8):
        view.remember(Output(worker="run-0-1", line=f"[rank 0] line {number}"))
    lines = console.render_lines(view.render())
    assert len(lines) < 14
    assert "".join(segment.text for segment in lines[-1]).strip() == "[rank 0] line 7"


def test_plain_lines_leave_out_what_agents_say_about_themselves() -> None:
    stream = io.StringIO()
    lines = PlainLines(BlockingWriter(stream), color=False, verbose=False)
    lines.emit(Output(worker="run-0-1", line="[agent] INFO order: Hold"))
    lines.emit(Output(worker="run-0-1", line="[agent] WARNING no room"))
    lines.emit(Output(worker="run-0-1", line="[rank 0] hello"))
    assert stream.getvalue() == "[agent] WARNING no room\n[rank 0] hello\n"


def test_verbose_lines_name_the_worker_and_what_is_waited_for_once() -> None:
    stream = io.StringIO()
    lines = PlainLines(BlockingWriter(stream), color=False, verbose=True)
    lines.emit(Output(worker="run-0-1", line="[agent] INFO order: Hold"))
    lines.emit(passed())
    lines.emit(passed())
    first, *others = stream.getvalue().splitlines()
    assert first == "[run-0-1] order: Hold"
    assert [line.split("  ")[-1] for line in others] == ["Running: attempt 1 is running"]


def summary(name: str, status: TrainRunStatus) -> list[str]:
    return [click.unstyle(line) for line in report_lines(report_of(name, status))]


def test_the_summary_of_a_failed_run_begins_with_the_culprit_and_its_last_lines() -> None:
    """It told the words of the incident three times."""
    incident = Incident(
        attempt=2,
        cause="AppError",
        rank=3,
        message="rank 3 exited with code 1: ValueError",
        last_lines=("Traceback", "ValueError: bad"),
        time=NOW,
        counted=True,
    )
    failed = Condition(
        type="Failed",
        status="True",
        reason="NoProgress",
        message=f"{incident.message} (AppError)",
        last_transition_time=NOW,
    )
    status = TrainRunStatus(conditions=(failed,), incidents=(incident,), attempt=2, phase="Failed")
    told = summary("d", status)
    headline = f"Run d failed (NoProgress): {failed.message}"
    assert told[:3] == [headline, "  Last lines of rank 3 in attempt 2:", "    | Traceback"]
    assert " ".join(told).count(incident.message) == 1


def test_the_incident_before_is_no_culprit_of_a_run_that_failed_for_another_reason() -> None:
    incident = Incident(
        attempt=1, cause="AppError", rank=3, message="bad", last_lines=("Traceback",), time=NOW
    )
    late = Condition(
        type="Failed",
        status="True",
        reason="DeadlineExceeded",
        message="spec.activeDeadline is over",
        last_transition_time=NOW,
    )
    told = summary("digits", TrainRunStatus(conditions=(late,), incidents=(incident,)))
    assert "Traceback" not in "".join(told)
    assert told[-1].strip() == "bad", "in the table of incidents"


POSTED = PostedProgress(
    text="120/500",
    step=120,
    total_steps=500,
    percent=24,
    metrics={"loss": 0.25},
    remaining_seconds=1260,
    time=NOW,
)
MUTE = TrainRunStatus(attempt=1, phase="Running", posted=POSTED)


def test_the_live_view_shows_what_a_framework_posts_where_the_script_reports_nothing() -> None:
    console = Console(file=io.StringIO(), width=110, color_system=None)
    timeline = Timeline(replicas=1, per_worker=1)
    view = LiveView(console, name="gpt2", timeline=timeline, per_worker=1)
    news = passed(running(0), status=MUTE)
    timeline.emit(news)
    view.remember(news)
    console.print(view.render())
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "step 120/500 posted   loss=0.25, 21 min left" in shown


def test_plain_lines_tell_of_posts_once_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainrun_operator.cli.lines.PROGRESS_EVERY", 0.0)
    stream = io.StringIO()
    lines = PlainLines(BlockingWriter(stream), color=False, verbose=False)
    for status in (MUTE, MUTE, replace(MUTE, posted=replace(POSTED, text="121/500"))):
        lines.emit(passed(status=status))
    assert [line.partition("s  ")[2] for line in stream.getvalue().splitlines()] == [
        f"Progress: step {step}/500 posted loss=0.25, 21 min left; checkpoint: none yet"
        for step in (120, 121)
    ]


@pytest.mark.parametrize(
    ("posted", "told"),
    [
        (POSTED, "steps        none reported, 120/500 posted  loss=0.25"),
        (None, "steps        none reported"),
    ],
)
def test_the_summary_does_not_take_posts_for_reports(
    posted: PostedProgress | None, told: str
) -> None:
    complete = Condition(
        type="Complete",
        status="True",
        reason="Succeeded",
        message="m",
        last_transition_time=NOW,
    )
    status = replace(MUTE, conditions=(complete,), completion_time=NOW, posted=posted)
    lines = [line.strip() for line in summary("gpt2", status)]
    assert told in lines
    assert any(line.startswith("no step was ever reported") for line in lines)


def test_a_program_of_tasks_shows_how_its_tasks_stand_and_needs_no_checkpoint() -> None:
    counts = {"tasks_done": 120, "tasks_failed": 2, "tasks_rebuilt": 0, "tasks_retried": 5}
    metrics = {**counts, "tasks_running": 8, "tasks_total": 300}
    status = replace(STATUS, progress=Progress(step=120, metrics=metrics))
    lines = [line.strip() for line in summary("prepare", status)]
    assert lines[1:] == [
        "steps        120  tasks: 120 of 300 done, 8 running, 2 failed, 5 retries",
        "attempts     1, failures 0",
        "checkpoint   none needed: done tasks are kept",
    ]


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (None, "loss=0.25"),
        (0, "loss=0.25"),
        (90, "loss=0.25, 90 s left"),
        (10_800, "loss=0.25, 3.0 h left"),
    ],
)
def test_the_time_left_in_words(left: int | None, told: str) -> None:
    status = replace(MUTE, posted=replace(POSTED, remaining_seconds=left))
    assert formatting.metrics_of(status) == told


def test_lines_for_programs_keep_posts_apart_from_reports() -> None:
    stream = io.StringIO()
    JsonLines(BlockingWriter(stream)).emit(passed(status=MUTE))
    state = json.loads(stream.getvalue())
    assert (state["step"], state["metrics"]) == (None, {})
    assert state["posted"] == {
        "step": 120,
        "totalSteps": 500,
        "percent": 24,
        "metrics": {"loss": 0.25},
        "remainingSeconds": 1260,
    }


def test_the_summary_tells_of_training_that_waited_for_uploads() -> None:
    told = "training waited 12 s for uploads"
    assert told in "\n".join(summary("digits", TrainRunStatus(progress=Progress(stall_seconds=12))))
    assert "training waited" not in "\n".join(summary("digits", STATUS))


def backing_off(left: float) -> TrainRunStatus:
    until = NOW + timedelta(seconds=left)
    ending = Ending(attempt=1, kind="Incident", time=NOW, not_before=until)
    return replace(STATUS, phase="Restarting", ending=ending)


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (11.2, "restarting in 12 s"),
        (0.4, "restarting in 1 s"),
        (1800.0, "restarting in 30 min"),
        (0.0, ""),
        (-5.0, ""),
    ],
)
def test_a_backoff_is_told_as_the_time_that_is_left(left: float, said: str) -> None:
    assert formatting.restarting(backing_off(left), now=NOW) == said


def test_no_backoff_and_no_end_wait_for_nothing() -> None:
    assert formatting.restarting(STATUS, now=NOW) == ""
    mark = Condition(
        type="Failed", status="True", reason="NoProgress", message="", last_transition_time=NOW
    )
    assert formatting.restarting(replace(backing_off(9), conditions=(mark,)), now=NOW) == ""


def test_the_live_view_counts_down_in_place_of_the_plan() -> None:
    view = LiveView(
        Console(), name="run", timeline=Timeline(replicas=1, per_worker=1), per_worker=1
    )
    status = backing_off((datetime.now(UTC) - NOW).total_seconds() + 50)
    view.remember(passed(running(), status=status))
    console = Console(file=io.StringIO(), width=100)
    console.print(view.render())
    assert "restarting in 50 s" in console.file.getvalue()  # type: ignore[attr-defined]


def recovered(**fields: Any) -> TrainRunStatus:
    """A run that has recovered."""
    parts = {"detect": 0.004, "stop": 0.1, "import": 6.1, "firstStep": 1.7}
    told = {"recovery_seconds": 7.9, "restart_seconds": 0.1, "stages": parts, **fields}
    incident = Incident(attempt=1, cause="AppError", time=NOW, detect_seconds=0.004, **told)
    return replace(STATUS, attempt=2, incidents=(incident,))


def test_the_summary_tells_the_parts_of_the_last_recovery_and_what_would_have_shortened_it() -> (
    None
):
    advice = "imports were 6.1 of the 7.9 s of a recovery: workers.warmStart would save most of it"
    text = "\n".join(summary("run", replace(recovered(), advice=advice)))
    assert "last recovery 7.9 s: stop 100 ms, import 6.1 s, first step 1.7 s" in text
    assert advice in text


def test_the_summary_of_a_warm_start_tells_how_many_were_warm_and_what_a_standby_takes() -> None:
    standing = Workers(ready=2, total=2, standby_memory="433Mi")
    why = "rank 2: it has no standby yet"
    text = "\n".join(summary("run", replace(recovered(warm=2, cold=why), workers=standing)))
    assert "last recovery 7.9 s, 2 warm: " in text
    assert f"a cold start: {why}" in text
    assert "standbys     433Mi per rank at most" in text
    assert "workers.warmStart" not in text


def test_the_summary_tells_nothing_of_a_recovery_that_is_not_over() -> None:
    text = "\n".join(summary("run", recovered(recovery_seconds=None)))
    assert "last recovery" not in text


def test_lines_for_programs_tell_of_each_recovery_once() -> None:
    stream = io.StringIO()
    lines = JsonLines(BlockingWriter(stream))
    for status in (STATUS, recovered(recovery_seconds=None), recovered(), recovered()):
        lines.emit(passed(running(), status=status))
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    (recovery,) = [line for line in told if line["event"] == "recovery"]
    assert recovery["attempt"] == 1
    assert recovery["seconds"] == pytest.approx(7.904)
    assert recovery["stages"]["import"] == 6.1
    assert recovery["warm"] == 0


def test_a_recovery_before_this_program_is_not_told_again() -> None:
    stream = io.StringIO()
    JsonLines(BlockingWriter(stream)).emit(passed(running(), status=recovered()))
    assert "recovery" not in stream.getvalue()
