"""What a drill concludes from what it has seen, without any process."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from trainrun.contract.agent_state import AgentState, Committed, SaveVote, StagedStep
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli.drilling.course import Course, Ending, Point
from trainrun_operator.cli.drilling.curves import Tolerance, deviations, tolerance
from trainrun_operator.cli.drilling.findings import REMEDIES
from trainrun_operator.cli.drilling.rehearsed import Rehearsed, findings_of_controls, judge
from trainrun_operator.cli.drilling.scenarios import Scenario, scenarios
from trainrun_operator.cli.drilling.watching import Watcher
from trainrun_operator.worlds.local.faults import Fault

UNTIL = 30
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
KILL = Scenario(name="KillAfterCheckpoint", fault=Fault(kind="kill", rank=1, step=25))
NOTICE = Scenario(name="Notice", fault=Fault(kind="preempt", rank=1, step=25, grace=20))


def points(attempt: int, first: int, last: int, *, plus: float = 0.0) -> tuple[Point, ...]:
    return tuple(
        Point(attempt=attempt, step=step, metrics={"loss": 1 / step + plus, "step_time": plus})
        for step in range(first, last + 1)
    )


CONTROL = Course(
    ending="Stopped",
    world_size=2,
    seconds=3.0,
    points=points(1, 1, UNTIL),
    chapters=(Chapter(number=1, attempt=1, begun=BEGAN, workers=2),),
    committed=(10, 20),
    reported={1: {0: UNTIL, 1: UNTIL}},
    asked=frozenset({1}),
)
EXACT = tolerance(CONTROL.curve(1), CONTROL.curve(1), until=UNTIL)


def struck(*, handed: int | None = 20, begins: int = 21, plus: float = 0.0) -> Course:
    """A run that a fault has struck at step 25."""
    resume = CheckpointId(attempt=1, step=handed) if handed is not None else None
    ended = BEGAN + timedelta(seconds=2)
    first = Chapter(
        number=1,
        attempt=1,
        begun=BEGAN,
        workers=2,
        reached=25,
        ended=ended,
        closed=ended,
        survived=handed,
    )
    second = Chapter(
        number=2,
        attempt=2,
        begun=ended,
        workers=2,
        resumed_from=resume,
        first_step=ended + timedelta(seconds=0.5),
    )
    return replace(
        CONTROL,
        points=(*points(1, 1, 25), *points(2, begins, UNTIL, plus=plus)),
        chapters=(first, second),
        opened=frozenset({2}),
        struck=True,
    )


def verdict(
    course: Course, scenario: Scenario = KILL, within: Tolerance | None = EXACT
) -> Rehearsed:
    return judge(scenario, course, CONTROL, within, until=UNTIL, on_notice="Auto")


def test_a_run_that_goes_on_equally_is_fine_with_its_numbers() -> None:
    told = verdict(struck())
    assert (told.outcome, told.resumed_from, told.lost_steps) == ("Fine", 20, 5)
    assert (told.curves, told.recovery, told.findings) == ("Equal", 0.5, ())


@pytest.mark.parametrize(
    ("course", "kind", "text"),
    [
        (replace(struck(begins=1), opened=frozenset()), "CheckpointIgnored", "began again with st"),
        (struck(begins=18), "StepsRepeated", "3 of the steps in the checkpoint were done twice"),
        (struck(begins=23), "StepsSkipped", "is step 23; an undisturbed run reports step 21"),
        (struck(plus=0.5), "CurvesDiffer", "loss differs from an undisturbed run in 10 of 10"),
        (replace(struck(), ending="Failed", failure="boom"), "RecoveryFailed", "boom"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_found_with_a_remedy(course: Course, kind: str, text: str) -> None:
    told = verdict(course)
    (finding,) = told.findings
    assert (told.outcome, finding.kind) == ("Found", kind)
    assert text in finding.text
    assert finding.remedy in REMEDIES.values()


@pytest.mark.parametrize(
    ("course", "scenario", "within", "why"),
    [
        (replace(struck(), struck=False), KILL, EXACT, "the fault never struck"),
        (struck(handed=None, begins=1), KILL, EXACT, "no checkpoint was committed yet"),
        (struck(), replace(KILL, name="KillBeforeCheckpoint"), EXACT, "was committed before the"),
        (struck(), KILL, None, "no second undisturbed run"),
        (replace(struck(), points=points(1, 1, 25)), KILL, EXACT, "no step after the resume"),
        (replace(struck(), chapters=CONTROL.chapters), KILL, EXACT, "no attempt was started"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_not_seen_is_never_fine(
    course: Course, scenario: Scenario, within: Tolerance | None, why: str
) -> None:
    told = verdict(course, scenario, within)
    assert told.outcome == "NotRehearsed"
    assert why in told.why_not


@pytest.mark.parametrize("ending", ["OutOfTime", "Stopped"])
def test_a_recovery_that_hangs_after_one_step_is_not_called_equal(ending: Ending) -> None:
    short = (*points(1, 1, 25), *points(2, 21, 21))
    told = verdict(replace(struck(), ending=ending, points=short, reported={2: {0: 22, 1: 22}}))
    assert (told.outcome, told.curves, told.findings) == ("NotRehearsed", "NotCompared", ())
    assert told.why_not == "after the fault it got to step 22 of 30 only"


def test_a_recovery_that_ends_early_is_not_called_fine() -> None:
    short = (*points(1, 1, 25), *points(2, 21, 24))
    told = verdict(replace(struck(), ending="Succeeded", points=short))
    assert (told.outcome, told.curves) == ("NotRehearsed", "NotCompared")
    assert told.why_not == "after the fault it got to step 24 of 30 only and ended with exit code 0"
    assert verdict(replace(struck(), ending="Succeeded")).outcome == "Fine"


@pytest.mark.parametrize(
    ("course", "why"),
    [
        (replace(struck(), struck=False), "the fault never struck"),
        (replace(struck(), chapters=CONTROL.chapters), "no attempt was started"),
    ],
    ids=["never struck", "no second attempt"],
)
def test_a_notice_that_was_not_seen_to_end_is_not_said_to_have_saved_nothing(
    course: Course, why: str
) -> None:
    told = verdict(course, NOTICE)
    assert (told.outcome, told.findings) == ("NotRehearsed", ())
    assert why in told.why_not


def test_a_notice_that_saves_nothing_is_found_and_says_whether_the_script_asks() -> None:
    (asked,) = verdict(struck(), NOTICE).findings
    assert asked.kind == "NoticeNotUsed"
    (never,) = verdict(replace(struck(), asked=frozenset()), NOTICE).findings
    assert never.kind == "ShouldSaveNeverAsked"
    assert "a notice of 20 s at step 25 saved nothing: it went on from step 20" in never.text
    assert verdict(struck(handed=25, begins=26), NOTICE).outcome == "Fine"
    stops = judge(NOTICE, struck(), CONTROL, EXACT, until=UNTIL, on_notice="Stop")
    assert stops.outcome == "Fine"


def test_a_rank_that_reports_nothing_is_found_only_where_a_checkpoint_waits_for_it() -> None:
    alone = replace(CONTROL, reported={1: {0: UNTIL}}, parts=(10,))
    (finding,) = findings_of_controls([alone, alone])
    assert finding.kind == "RanksSilent"
    assert "rank 1 of 2 reported nothing, and the checkpoint of step 10" in finding.text
    assert findings_of_controls([replace(alone, parts=())]) == ()
    assert findings_of_controls([alone, CONTROL]) == ()


def test_the_difference_of_two_undisturbed_runs_twice_is_allowed_and_no_more() -> None:
    other = replace(CONTROL, points=points(1, 1, UNTIL, plus=0.1)).curve(1)
    within = tolerance(CONTROL.curve(1), other, until=UNTIL)
    assert within.allowed == {"loss": pytest.approx(0.2)}  # nothing that is called a time
    assert not within.exact
    assert verdict(struck(plus=0.15), within=within).curves == "WithinTolerance"
    assert verdict(struck(plus=0.3), within=within).outcome == "Found"


def test_numbers_that_are_none_are_equal_to_each_other_and_to_nothing_else() -> None:
    lost = {1: {"loss": math.nan}, 2: {"loss": math.inf}}
    within = tolerance(lost, lost, until=2)
    assert within.exact
    assert deviations(lost, lost, within, after=0, until=2) == []
    (wrong,) = deviations({1: {"loss": 1.0}}, lost, within, after=0, until=2)
    assert wrong.largest.size == math.inf


def test_faults_strike_the_highest_rank_that_reports_between_checkpoints() -> None:
    after, before, notice = scenarios(CONTROL, until=UNTIL, grace=20)
    assert after.fault == Fault(kind="kill", rank=1, step=25)
    assert before.fault == Fault(kind="kill", rank=1, step=5)
    assert notice.fault == Fault(kind="preempt", rank=1, step=25, grace=20)


def test_without_room_for_a_fault_it_is_said_why() -> None:
    none = scenarios(replace(CONTROL, committed=()), until=UNTIL, grace=20)
    assert none[0].why_not.startswith("no checkpoint was committed before step 30")
    each = scenarios(replace(CONTROL, committed=(1, 2)), until=2, grace=20)
    assert each[1].why_not == "the first checkpoint comes with step 1 already"


def heartbeat(slot: int, step: int | None, **more: object) -> AgentState:
    state = AgentState(
        run="drill",
        run_uid="u",
        slot=slot,
        worker=f"drill-{slot}-1",
        created_for=1,
        agent="a",
        sequence=1,
        phase="Running",
        attempt=1,
        steps=(step,),
    )
    return replace(state, **more)  # type: ignore[arg-type]


def test_a_run_is_ended_once_the_lowest_rank_has_got_to_the_step() -> None:
    ended: list[int] = []
    watcher = Watcher(until=5, attempt=1, ready=lambda: True, enough=lambda: ended.append(1))
    watcher.hear(heartbeat(0, 4))
    watcher.hear(heartbeat(1, 6, save=SaveVote(calls=3)))
    assert ended == []
    watcher.hear(heartbeat(0, 5, staged=(StagedStep(step=5, ranks=(0,)),)))
    watcher.hear(heartbeat(0, 7))
    assert ended == [1]
    assert (watcher.asked, watcher.parts) == ({1}, {5})
    assert dict(watcher.reported) == {1: {0: 7, 1: 6}}


def test_without_a_step_a_run_is_ended_by_its_third_checkpoint() -> None:
    ended: list[int] = []
    watcher = Watcher(until=None, attempt=1, ready=lambda: True, enough=lambda: ended.append(1))
    for step in (10, 20, 30):
        assert ended == []
        commit = Committed(id=CheckpointId(attempt=1, step=step))
        watcher.hear(heartbeat(0, step, committed=commit))
    assert ended == [1]
