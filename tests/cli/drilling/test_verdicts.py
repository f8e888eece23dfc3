"""What a drill concludes from what it has seen, without any process."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from trainrun.contract.agent_state import AgentState, Committed, SaveVote
from trainrun.contract.answer import OnNotice
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.staged_parts import StagedStep
from trainrun_operator.api.run.story import Chapter
from trainrun_operator.cli.drilling.comparing import Tolerance, deviations, tolerance
from trainrun_operator.cli.drilling.findings import FaultFreeBaseline
from trainrun_operator.cli.drilling.remedies import REMEDIES, Finding
from trainrun_operator.cli.drilling.run_monitor import Watcher, in_steps_of_output
from trainrun_operator.cli.drilling.runs import (
    OURS,
    Content,
    DrillRun,
    Ending,
    Noticed,
    Point,
    Scenario,
    at_end,
    fault_scenarios,
    scenarios,
)
from trainrun_operator.cli.drilling.verdicts import (
    Rehearsed,
    earlier,
    findings_of_controls,
    judge,
    longer,
    with_measured,
)
from trainrun_operator.worlds.local.faults import Fault

UNTIL = 30
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
KILL = Scenario(name="KillAfterCheckpoint", faults=(Fault(kind="kill", rank=1, step=25),))
NOTICE = Scenario(name="Notice", faults=(Fault(kind="preempt", rank=1, step=25, grace=20),))


def points(attempt: int, first: int, last: int, *, plus: float = 0.0) -> tuple[Point, ...]:
    return tuple(
        Point(attempt=attempt, step=step, metrics={"loss": 1 / step + plus, "step_time": plus})
        for step in range(first, last + 1)
    )


CONTROL = DrillRun(
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


def struck(*, handed: int | None = 20, begins: int = 21, plus: float = 0.0) -> DrillRun:
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
    drill_run: DrillRun, scenario: Scenario = KILL, within: Tolerance | None = EXACT
) -> Rehearsed:
    return judge(scenario, drill_run, beside(within))


def beside(within: Tolerance | None = EXACT, *, on_notice: OnNotice = "Auto") -> FaultFreeBaseline:
    return FaultFreeBaseline(control=CONTROL, within=within, until=UNTIL, on_notice=on_notice)


def test_a_run_that_goes_on_equally_is_fine_with_its_numbers() -> None:
    told = verdict(struck())
    assert (told.outcome, told.resumed_from, told.lost_steps) == ("Fine", 20, 5)
    assert (told.curves, told.recovery, told.findings) == ("Equal", 0.5, ())


UNCHANGED = replace(CONTROL, reads_output=True)


def unchanged(
    drill_run: DrillRun, *, control: DrillRun = UNCHANGED, resume_args: tuple[str, ...] = ()
) -> Rehearsed:
    """The verdict on a run of a script with a folder of its own; the save has number 3."""
    drill_run = in_steps_of_output(replace(drill_run, reads_output=True, opened=frozenset()))
    within = tolerance(control.curve(1), control.curve(1), until=UNTIL)
    baseline = beside(within if within.steps else None)
    baseline = replace(baseline, control=control, resume_args=resume_args)
    return judge(KILL, drill_run, baseline)


def test_an_unchanged_script_resumes_from_the_step_before_the_first_one_in_its_output() -> None:
    told = unchanged(struck(handed=3, begins=19))
    assert (told.outcome, told.why_not, told.curves) == ("Fine", "", "Equal")
    assert (told.resumed_from, told.lost_steps) == (18, 7)


def test_an_unchanged_script_that_begins_again_although_its_save_was_put_back_is_found() -> None:
    told = unchanged(struck(handed=3, begins=1))
    (finding,) = told.findings
    assert (finding.kind, told.curves, told.resumed_from) == ("StartedOver", "NotCompared", None)
    assert finding.text == (
        "a save was put back, but the script did not look for it: its output begins with step 1 "
        "again, as that of an undisturbed run"
    )
    assert finding.remedy.startswith("give checkpoint.folder.resumeArgs the script's own flag")


def test_a_script_that_ignores_its_flag_is_told_so_by_the_name_of_the_flag() -> None:
    # The run fails by itself then: a save of step 1 must not replace that of step 20.
    drill_run = struck(handed=3, begins=1)
    (finding,) = unchanged(
        replace(drill_run, ending="Failed", failure="it started over"),
        resume_args=("--resume", "{newest}"),
    ).findings
    assert finding.kind == "StartedOver"
    assert finding.text.startswith(
        "a save was put back, but the script ignored `--resume {newest}`: its output begins with"
    )
    assert finding.remedy.startswith("try the script by hand with checkpoint.folder.resumeArgs")


def test_a_script_that_does_not_know_its_flag_has_a_remedy_for_that() -> None:
    drill_run = replace(struck(handed=3), points=points(1, 1, 25), ending="Failed", failure="dead")
    (finding,) = unchanged(drill_run, resume_args=("--resume",)).findings
    assert (finding.kind, finding.text) == (
        "RecoveryFailed",
        "the run failed after the fault: dead",
    )
    assert finding.remedy.startswith("try the script by hand with checkpoint.folder.resumeArgs")


def test_an_unchanged_script_of_which_nothing_was_stored_has_no_fault_to_survive() -> None:
    control = replace(UNCHANGED, committed=(), unsaved="the script left nothing in out")
    why = "no save was stored before step 30: the script left nothing in out"
    planned = (*scenarios(control, until=UNTIL, grace=4), *fault_scenarios(control, until=UNTIL))
    found = {scenario.name: scenario.why_not for scenario in planned}
    assert (found["KillAfterCheckpoint"], found["NodeLoss"]) == (why, why)


def test_what_an_unchanged_script_does_not_load_has_a_remedy_without_calls_of_ours() -> None:
    (finding,) = unchanged(struck(handed=3, begins=19, plus=0.5)).findings
    assert finding.kind == "WeightsDiffer"
    assert finding.remedy == (
        "the script's own save lacks this, or its flag to resume does not load it: the files were "
        "put back as they were"
    )


def test_an_unchanged_script_that_shows_steps_alone_is_not_called_fine() -> None:
    first, second = struck(handed=3).chapters
    chapters = (replace(first, began_with=1), replace(second, began_with=19))
    silent = replace(struck(), points=(), chapters=chapters)
    told = unchanged(silent, control=replace(UNCHANGED, points=(), chapters=chapters[:1]))
    assert (told.outcome, told.resumed_from) == ("NotRehearsed", 18)
    assert told.why_not == (
        "only the step is known with which it continues: the output shows no metrics. Add a group "
        "such as loss to spec.progress.patterns, to see whether the save was loaded"
    )


@pytest.mark.parametrize(("form", "kinds"), [("pattern 1", ["StartedOver"]), ("tqdm", [])])
def test_without_metrics_a_bar_that_is_drawn_at_0_before_it_jumps_shows_no_start_over(
    form: str, kinds: list[str]
) -> None:
    first, second = struck(handed=3).chapters
    read = f'form {form}, line "0" of rank 0'
    first = replace(first, began_with=0, read_from=read)
    chapters = (first, replace(second, began_with=0, read_from=read))
    told = unchanged(
        replace(struck(), points=(), chapters=chapters),
        control=replace(UNCHANGED, points=(), chapters=chapters[:1]),
    )
    assert [finding.kind for finding in told.findings] == kinds


def test_an_unchanged_script_with_a_folder_that_a_drill_does_not_move_is_told_so() -> None:
    second = replace(UNCHANGED, points=points(1, 22, UNTIL))
    (finding,) = findings_of_controls([UNCHANGED, second], grace=30, on_notice="Auto")
    assert finding.kind == "OwnFilesUsed"
    assert finding.remedy.startswith("write checkpoint.folder.path as in the command")


def test_a_notice_that_saved_nothing_in_a_cluster_is_found_without_a_guess_at_the_reason() -> None:
    (finding,) = verdict(replace(struck(), has_heartbeats=False), NOTICE).findings
    assert finding.kind == "NoticeSavedNothing"
    assert "should_save() was called too late, or the save did not end in time" in finding.text
    silent = replace(struck(), has_heartbeats=False, asked=frozenset())
    (finding,) = verdict(silent, NOTICE).findings
    assert finding.kind == "ShouldSaveNeverAsked"


@pytest.mark.parametrize(
    ("drill_run", "kind", "text"),
    [
        (replace(struck(begins=1), opened=frozenset()), "CheckpointNeverAsked", "no process that"),
        (
            replace(struck(begins=1), opened=frozenset(), sought=frozenset({2})),
            "CheckpointNeverOpened",
            "did not open it, and started again with step 1",
        ),
        (struck(begins=18), "StepsRepeated", "3 of the steps in the checkpoint were done twice"),
        (struck(begins=23), "StepsSkipped", "is step 23; an undisturbed run reports step 21"),
        (struck(plus=0.5), "WeightsDiffer", "loss differs from an undisturbed run in 10 of 10"),
        (replace(struck(), ending="Failed", failure="boom"), "RecoveryFailed", "boom"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_found_with_a_remedy(drill_run: DrillRun, kind: str, text: str) -> None:
    told = verdict(drill_run)
    (finding,) = told.findings
    assert (told.outcome, finding.kind) == ("Found", kind)
    assert text in finding.text
    assert finding.remedy in REMEDIES.values()


@pytest.mark.parametrize(
    ("drill_run", "scenario", "within", "why"),
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
    drill_run: DrillRun, scenario: Scenario, within: Tolerance | None, why: str
) -> None:
    told = verdict(drill_run, scenario, within)
    assert told.outcome == "NotRehearsed"
    assert why in told.why_not


@pytest.mark.parametrize("ending", ["OutOfTime", "Stopped"])
def test_a_recovery_that_hangs_after_one_step_is_not_called_equal(ending: Ending) -> None:
    short = (*points(1, 1, 25), *points(2, 21, 21))
    told = verdict(replace(struck(), ending=ending, points=short, reported={2: {0: 22, 1: 22}}))
    assert (told.outcome, told.curves, told.findings) == ("NotRehearsed", "NotCompared", ())
    assert told.why_not == "after the fault it only got to step 22 of 30"


def test_a_recovery_that_ends_early_is_not_called_fine() -> None:
    short = (*points(1, 1, 25), *points(2, 21, 24))
    told = verdict(replace(struck(), ending="Succeeded", points=short))
    assert (told.outcome, told.curves) == ("NotRehearsed", "NotCompared")
    assert told.why_not == "after the fault it only got to step 24 of 30 and ended with exit code 0"
    assert verdict(replace(struck(), ending="Succeeded")).outcome == "Fine"


@pytest.mark.parametrize(
    ("drill_run", "why"),
    [
        (replace(struck(), struck=False), "the fault never struck"),
        (replace(struck(), chapters=CONTROL.chapters), "no attempt was started"),
    ],
    ids=["never struck", "no second attempt"],
)
def test_a_notice_that_was_not_seen_to_end_is_not_said_to_have_saved_nothing(
    drill_run: DrillRun, why: str
) -> None:
    told = verdict(drill_run, NOTICE)
    assert (told.outcome, told.findings) == ("NotRehearsed", ())
    assert why in told.why_not


def test_a_notice_that_saves_nothing_is_found_and_says_whether_the_script_asks() -> None:
    (asked,) = verdict(struck(), NOTICE).findings
    assert "some ranks had not called should_save() by then" in asked.text
    idle = Noticed(agreed=0.5, calls=7)
    (asked_for,) = verdict(replace(struck(), noticed=idle), NOTICE).findings
    assert asked_for.kind == "NoticeNotUsed"
    assert "the script called it 7 more times and" in asked_for.text
    busy = Noticed(agreed=0.5, reported=15.0)
    told = verdict(replace(struck(), noticed=idle), NOTICE)
    again = longer(told)
    assert again is not None, "a thread may have been saving meanwhile"
    assert again.faults[0].grace > 10 * NOTICE.faults[0].grace
    (measured,) = with_measured(told, replace(struck(), noticed=Noticed(committed=40.0))).findings
    assert measured.kind == "SaveTooSlow"
    assert "set terminationGracePeriodSeconds to 60 to leave some room" in measured.text
    (never,) = with_measured(told, struck()).findings
    assert (never.kind, never.text[-7:]) == ("NoticeNotUsed", " either")
    (slow,) = verdict(replace(struck(), noticed=busy), NOTICE).findings
    assert slow.kind == "SaveTooSlow"
    assert "should_save() returned true after 500 ms, files were reported after 15 s" in slow.text
    assert asked.kind == "SaveTooLate"
    (never,) = verdict(replace(struck(), asked=frozenset()), NOTICE).findings
    assert never.kind == "ShouldSaveNeverAsked"
    assert (
        "a notice of 20 s at step 25 saved nothing: training continued from step 20" in never.text
    )
    assert verdict(struck(handed=25, begins=26), NOTICE).outcome == "Fine"
    stops = judge(NOTICE, struck(), beside(on_notice="Stop"))
    assert stops.outcome == "Fine"


def of_controls(controls: list[DrillRun]) -> tuple[Finding, ...]:
    return findings_of_controls(controls, grace=30, on_notice="Auto")


def test_a_notice_that_a_checkpoint_outlived_by_chance_is_not_called_fine() -> None:
    regular = replace(CONTROL, committed=(10, 20, 26))
    late = struck(handed=26, begins=27)
    told = judge(NOTICE, late, replace(beside(), control=regular))
    assert told.outcome == "NotRehearsed"
    assert told.why_not == (
        "the checkpoint of step 26 was saved anyway, so the drill did not see what a notice saves"
    )
    asked_for = replace(late, noticed=Noticed(agreed=0.1, reported=0.2, committed=0.3))
    assert judge(NOTICE, asked_for, replace(beside(), control=regular)).outcome == "Fine"


def test_a_notice_whose_save_came_with_the_last_step_is_given_once_more_and_earlier() -> None:
    late = replace(struck(handed=32), points=points(1, 1, 31), reported={1: {0: 31}, 2: {0: 32}})
    late = replace(late, noticed=Noticed(reported=0.5, committed=0.6))
    told = verdict(late, NOTICE)
    assert "no step after the resume" in told.why_not
    again = earlier(told, late, until=UNTIL)
    assert again is not None
    assert again.shown == "preempt rank=1 step=16 grace=20s"
    assert earlier(verdict(struck(), NOTICE), struck(), until=UNTIL) is None
    early = replace(NOTICE, faults=(replace(NOTICE.faults[0], step=1),))
    assert earlier(verdict(late, early), late, until=UNTIL) is None, "it cannot come earlier"


def test_a_rank_that_reports_nothing_is_found_only_where_a_checkpoint_waits_for_it() -> None:
    alone = replace(CONTROL, reported={1: {0: UNTIL}}, parts=(10,))
    (finding,) = of_controls([alone, alone])
    assert finding.kind == "RanksSilent"
    assert "rank 1 of 2 reported nothing, and the checkpoint of step 10" in finding.text
    assert of_controls([replace(alone, parts=())]) == ()
    assert of_controls([alone, CONTROL]) == ()


def apart(plus: float, **metrics: float | str) -> Tolerance:
    """From two undisturbed runs whose losses are so far apart, the second with other metrics."""
    one = {s: {**m, **dict.fromkeys(metrics, "a")} for s, m in CONTROL.curve(1).items()}
    other = replace(CONTROL, points=points(1, 1, UNTIL, plus=plus)).curve(1)
    return tolerance(one, {step: {**m, **metrics} for step, m in other.items()}, until=UNTIL)


def test_a_curve_in_which_undisturbed_runs_hardly_differ_may_differ_a_little_after_a_resume() -> (
    None
):
    within = apart(0.001)
    assert within.allowed == {"loss": pytest.approx(0.0967, rel=0.01)}  # a tenth of its range
    assert not within.exact
    assert verdict(struck(handed=10, begins=11, plus=0.05), within=within).outcome == "Fine"
    assert verdict(struck(plus=0.3), within=within).outcome == "Found"


def test_where_undisturbed_runs_differ_as_much_as_the_curve_moves_nothing_is_concluded() -> None:
    within = apart(0.5)
    assert (dict(within.allowed), within.noisy) == ({}, ("loss",))
    for drill_run in (struck(), struck(plus=0.9)):
        told = verdict(drill_run, within=within)
        assert (told.outcome, told.findings) == ("NotRehearsed", ())
        assert told.why_not.startswith("your two undisturbed runs differ (loss by 0.5), so the cur")
        assert "seed all random generators" in told.why_not
    nothing = verdict(struck(handed=None, begins=1), replace(KILL, name="KillBeforeCheckpoint"))
    assert nothing.outcome == "Fine", "it had nothing to load"


def test_what_tells_about_a_process_and_not_about_the_training_is_no_finding() -> None:
    within = apart(0.0, where="host-b", wall=3.0)
    assert (within.exact, within.noisy) == (True, ("where", "wall"))
    own = CONTROL.curve(1)
    one = {step: {**metrics, "attempt": 1, "host": "a"} for step, metrics in own.items()}
    two = {step: {**metrics, "attempt": 2, "host": "b"} for step, metrics in own.items()}
    exact = tolerance(one, one, until=UNTIL)
    assert deviations(two, one, exact, after=20, until=UNTIL) == []
    rates = [{step: {"lr": rate} for step in own} for rate in (0.1, 0.2)]
    equal = tolerance(rates[0], rates[0], until=UNTIL)
    assert len(deviations(rates[1], rates[0], equal, after=20, until=UNTIL)) == 1


def test_metrics_that_are_the_same_whatever_was_loaded_show_nothing() -> None:
    steps = {step: {"epoch": step / 10, "lr": 0.1 * step} for step in range(1, UNTIL + 1)}
    told = tuple(Point(attempt=1, step=step, metrics=m) for step, m in steps.items())
    resumed = tuple(replace(it, attempt=2) for it in told if it.step > 20)
    against = FaultFreeBaseline(
        control=replace(CONTROL, points=told),
        within=tolerance(steps, steps, until=UNTIL),
        until=UNTIL,
        on_notice="Auto",
    )
    verdict_ = judge(KILL, replace(struck(), points=(*told, *resumed)), against)
    assert verdict_.outcome == "NotRehearsed"
    assert "no metric shows whether anything was loaded: report the loss" in verdict_.why_not


def test_numbers_that_are_none_are_equal_to_each_other_and_to_nothing_else() -> None:
    lost = {1: {"loss": math.nan}, 2: {"loss": math.inf}}
    within = tolerance(lost, lost, until=2)
    assert within.exact
    assert deviations(lost, lost, within, after=0, until=2) == []
    (wrong,) = deviations({1: {"loss": 1.0}}, lost, within, after=0, until=2)
    assert wrong.largest.size == math.inf


def test_faults_strike_the_highest_rank_that_reports_or_the_one_that_saves() -> None:
    saves = replace(CONTROL, savers=(0,))
    planned = {it.name: it.faults for it in scenarios(saves, until=UNTIL, grace=20)}
    assert planned == {
        "KillAfterCheckpoint": (Fault(kind="kill", rank=1, step=21),),
        "KillWhileSaving": (Fault(kind="kill", rank=0, step=20, at="save"),),
        "Notice": (Fault(kind="preempt", rank=1, step=25, grace=20),),
        "KillBeforeCheckpoint": (Fault(kind="kill", rank=1, step=5),),
        "KillMidEpoch": (Fault(kind="kill", rank=1, step=25),),
    }


def test_without_room_for_a_fault_it_is_said_why() -> None:
    none = {it.name: it for it in scenarios(replace(CONTROL, committed=()), until=30, grace=20)}
    assert none["KillAfterCheckpoint"].why_not.startswith("no checkpoint was committed before st")
    assert none["KillMidEpoch"].why_not == none["KillAfterCheckpoint"].why_not
    assert none["KillWhileSaving"].why_not.startswith("no rank is known to have saved files")
    close = replace(CONTROL, committed=(1, 2))
    each = {it.name: it for it in scenarios(close, until=4, grace=20)}
    assert each.keys() == {"KillAfterCheckpoint", "KillWhileSaving", "Notice"}


def test_a_script_that_reports_only_where_it_saves_is_struck_as_it_saves() -> None:
    told = tuple(it for it in CONTROL.points if it.step % 10 == 0)
    only = replace(CONTROL, points=told, committed=(10, 20, 30, 40, 50), savers=(0,))
    planned = {it.name: it.shown for it in scenarios(only, until=50, grace=20)}
    assert planned == {
        "KillAfterCheckpoint": "kill rank=1 step=21",
        "KillWhileSaving": "kill rank=0 step=20 at=save",
        "Notice": "preempt rank=1 step=25 grace=20s",
        "KillBeforeCheckpoint": "kill rank=0 step=10 at=save",
    }


def test_a_run_that_has_ended_with_a_checkpoint_is_killed_with_its_last_step() -> None:
    ended = replace(CONTROL, committed=(10, 20, 30))
    assert at_end(ended, until=UNTIL).shown == "kill rank=1 step=30"
    assert "of the last step, 30" in at_end(CONTROL, until=UNTIL).why_not
    scenario = Scenario(name="KillAtEnd", faults=(Fault(kind="kill", rank=1, step=30),))
    done = replace(struck(handed=30), points=points(1, 1, 30), ending="Succeeded")
    assert verdict(done, scenario).outcome == "Fine"
    early = verdict(replace(done, chapters=struck(handed=20).chapters), scenario)
    assert early.why_not.startswith("the checkpoint of the last step was not committed yet")
    assert "did not end" in verdict(replace(done, ending="OutOfTime"), scenario).why_not
    (finding,) = verdict(replace(done, ending="Failed", failure="boom"), scenario).findings
    assert finding.kind == "RecoveryFailed"
    assert "leaves the loop nothing to do" in finding.remedy


def test_an_undisturbed_run_that_goes_on_where_the_first_one_ended_is_told_and_not_rehearsed() -> (
    None
):
    saved_ = replace(CONTROL, committed=(10, 20, 30))
    for second, text in (
        (replace(saved_, points=points(1, 31, 40)), "the second one began with step 31. It found"),
        (replace(saved_, points=(), ending="Succeeded"), "the second one ended without a step"),
    ):
        (finding,) = of_controls([saved_, second])
        assert finding.kind == "OwnFilesUsed"
        assert text in finding.text
        assert "get_checkpoint()" in finding.remedy
    assert of_controls([saved_, replace(saved_, points=points(1, 3, 30))]) == ()
    seldom = replace(saved_, points=points(1, 20, 30))
    assert of_controls([seldom, seldom]) == (), "it reports its first step after a checkpoint"


@pytest.mark.parametrize(
    ("file", "entries", "remedy"),
    [
        ("trainer_state.json", None, "trainer.train(resume_from_checkpoint=resume_path())"),
        ("last.ckpt", {"pytorch-lightning_version": b""}, "trainer.fit(..., ckpt_path=resume_path"),
        ("state.pt", None, "call trainrun.get_checkpoint() before the loop"),
    ],
)
def test_a_framework_that_was_not_told_to_resume_is_told_with_its_own_words(
    file: str, entries: dict[str, bytes] | None, remedy: str
) -> None:
    control = replace(CONTROL, contents={(1, 20): {file: Content((1, 1), entries)}})
    drill_run = replace(struck(begins=1), opened=frozenset())
    (finding,) = judge(KILL, drill_run, replace(beside(), control=control)).findings
    assert finding.kind == "CheckpointNeverAsked"
    assert remedy in finding.remedy


def test_a_run_that_goes_on_without_having_asked_for_its_checkpoint_has_files_of_its_own() -> None:
    heard = {1: {0: 25, 1: 25}, 2: {0: UNTIL, 1: UNTIL}}
    silent = replace(struck(), opened=frozenset(), reported=heard)
    (finding,) = verdict(silent).findings
    assert finding.kind == "OwnFilesUsed"
    assert "continued with step 21 without calling get_checkpoint()" in finding.text
    asked = replace(silent, sought=frozenset({2}))
    assert verdict(asked).outcome == "Fine", "a step may be all that it needs"


def test_a_script_that_saves_before_the_step_whose_number_it_gives_does_no_step_twice() -> None:
    again = struck(begins=20)
    assert verdict(again).outcome == "Fine"
    told = {it.step: it.metrics for it in CONTROL.points}
    late = (it for it in again.points if it.attempt == 2 and it.step < UNTIL)
    ahead = tuple(replace(it, metrics=told[it.step + 1]) for it in late)
    (finding,) = verdict(replace(again, points=(*points(1, 1, 25), *ahead))).findings
    assert finding.kind == "StepsRepeated"
    assert "1 of the steps in the checkpoint were done twice" in finding.text
    redrawn = tuple(
        replace(it, metrics={"loss": 1 / it.step + (-1) ** it.step * 0.01})
        for it in again.points
        if it.attempt == 2
    )
    (finding,) = verdict(replace(again, points=(*points(1, 1, 25), *redrawn))).findings
    assert finding.kind == "DataOrRandomDiffer"


def test_what_tests_us_strikes_in_mid_epoch_with_a_checkpoint_behind_it() -> None:
    planned = {
        it.name: it
        for it in fault_scenarios(replace(CONTROL, savers=(0,), longest_step=4.0), until=UNTIL)
    }
    assert tuple(planned) == OURS
    assert planned["CorruptNewest"].store == "SpoilNewest"
    assert planned["StoreAway"].store == "Away"
    assert planned["DoubleFailure"].shown == "kill rank=1 step=25, kill rank=1 step=0 at=load"
    assert planned["NodeLoss"].shown == "node-loss rank=1 step=25"
    assert (planned["Hang"].shown, planned["Hang"].watched) == ("hang rank=1 step=25", 12.0)
    one = {it.name: it for it in fault_scenarios(replace(CONTROL, committed=(10,)), until=UNTIL)}
    assert "this fault needs two checkpoints" in one["CorruptNewest"].why_not
    assert one["StoreAway"].faults
    for without in (replace(CONTROL, committed=()), replace(CONTROL, committed=(29,))):
        assert all(it.why_not for it in fault_scenarios(without, until=UNTIL))


def test_damage_that_nobody_read_is_not_called_rehearsed() -> None:
    damage = Scenario(name="CorruptNewest", faults=KILL.faults, store="SpoilNewest")
    assert (
        verdict(struck(), damage).why_not == "no checkpoint was committed yet that could be damaged"
    )
    unread = verdict(replace(struck(), spoilt=20), damage)
    assert unread.why_not == "the damaged file of the checkpoint of step 20 was never read"
    closed = verdict(replace(struck(), spoilt=20, opened=frozenset()), damage)
    assert closed.why_not == "the checkpoint of step 20 was damaged, but no rank opened it"
    assert verdict(replace(struck(handed=10, begins=11), spoilt=20), damage).outcome == "Fine"


def test_the_stages_of_a_recovery_sum_to_it() -> None:
    drill_run = struck()
    first, second = drill_run.chapters
    spawned = second.begun + timedelta(seconds=0.2)
    told = verdict(
        replace(
            drill_run,
            chapters=(first, replace(second, spawned=spawned, rendezvous_seconds=0.1)),
        )
    )
    assert told.stages == {
        "stop": 0.0,
        "start": 0.2,
        "rendezvous": 0.1,
        "load": 0.0,
        "firstStep": 0.2,
    }
    assert told.recovery == pytest.approx(sum(told.stages.values()))


def test_how_long_a_notice_takes_to_be_saved_is_measured_from_the_strike() -> None:
    now = [100.0]
    struck_by: list[int] = []
    watcher = Watcher(
        until=9,
        attempt=2,
        ready=lambda: True,
        enough=lambda: None,
        began=lambda: True,
        on_strike=lambda: struck_by.append(1),
        clock=lambda: now[0],
    )
    watcher.observe(heartbeat(0, 5))
    now[0] = 101.0
    watcher.observe(heartbeat(0, 5, save=SaveVote(calls=6, committed=7)))
    now[0] = 103.0
    staged = StagedStep(step=6, ranks=(0,), after_save=True)
    watcher.observe(heartbeat(0, 6, save=SaveVote(calls=9, committed=7), staged=(staged,)))
    now[0] = 104.5
    commit = Committed(id=CheckpointId(attempt=1, step=6))
    watcher.observe(heartbeat(0, 6, committed=commit, ask_gap=1.5))
    assert struck_by == [1]
    assert watcher.noticed(5) == Noticed(agreed=1.0, reported=3.0, committed=4.5, calls=2)
    assert watcher.ask_gap == 1.5
    watcher.observe(heartbeat(1, 6, save=SaveVote(calls=7, committed=7)))
    assert watcher.noticed(5).calls == 0, "while one worker saves, the other may go on asking"


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
    watcher.observe(heartbeat(0, 4))
    watcher.observe(heartbeat(1, 6, save=SaveVote(calls=3)))
    assert ended == []
    watcher.observe(heartbeat(0, 5, staged=(StagedStep(step=5, ranks=(0,)),)))
    watcher.observe(heartbeat(0, 7))
    assert ended == [1]
    assert (watcher.asked, watcher.parts) == ({1}, {5})
    assert dict(watcher.reported) == {1: {0: 7, 1: 6}}


@pytest.mark.parametrize(
    ("between", "seconds", "last"),
    [((5, 12, 25), 1.0, 30), ((), 1.0, 50), ((25,), 60.0, 25), ((), 60.0, 30)],
    ids=["reports each step", "reports where it saves", "late", "late and reports where it saves"],
)
def test_without_a_step_a_run_is_ended_once_there_is_room_for_all_faults(
    between: tuple[int, ...], seconds: float, last: int
) -> None:
    ended: list[int] = []
    now = [100.0]
    watcher = Watcher(
        until=None,
        share=100.0,
        attempt=1,
        ready=lambda: True,
        enough=lambda: ended.append(1),
        clock=lambda: now[0],
    )
    for step in sorted((10, 20, 30, 40, 50, *between)):
        assert ended == []
        now[0] += seconds
        saves = {"committed": Committed(id=CheckpointId(attempt=1, step=step))}
        watcher.observe(heartbeat(0, step, **({} if step in between else saves)))
        if ended:
            break
    assert (ended, step) == ([1], last)
