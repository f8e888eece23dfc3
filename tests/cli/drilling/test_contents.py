"""Checkpoints that were saved after a resume, beside those of undisturbed runs."""

from __future__ import annotations

from dataclasses import replace

from tests.cli.drilling.test_verdicts import CONTROL, KILL, beside, struck
from trainrun_operator.cli.drilling.comparing import agreed
from trainrun_operator.cli.drilling.run_monitor import of_save
from trainrun_operator.cli.drilling.runs import Content
from trainrun_operator.cli.drilling.verdicts import judge


def saved(attempt: int, **files: Content) -> dict[tuple[int, int], dict[str, Content]]:
    return {(attempt, 30): files}


def test_checkpoints_that_two_undisturbed_runs_save_alike_are_compared() -> None:
    one = replace(CONTROL, contents=saved(1, a=Content((1, 1)), random=Content((1, 8))))
    other = replace(CONTROL, contents=saved(1, a=Content((1, 1)), random=Content((1, 9))))
    contents = agreed(one, other)
    assert contents == {30: {"a": Content((1, 1))}}
    against = replace(beside(), contents=contents)
    same = saved(2, a=Content((1, 1)), random=Content((1, 7)))
    told = judge(KILL, replace(struck(), contents=same), against)
    assert (told.outcome, told.checkpoints) == ("Fine", "Equal")
    gone = judge(KILL, replace(struck(), contents=saved(2, random=Content((1, 8)))), against)
    (finding,) = gone.findings
    assert finding.kind == "CheckpointsDiffer"
    assert "the checkpoint of step 30, saved after the resume" in finding.text
    assert finding.text.endswith("equal: a (1 of 1 entries). No metric shows it")
    assert (gone.checkpoints, gone.curves) == ("Differ", "Equal")
    assert judge(KILL, struck(), against).checkpoints == "NotCompared"


def test_entries_that_two_undisturbed_runs_save_alike_are_compared_whatever_the_bytes() -> None:
    def state(told: int, **entries: bytes) -> Content:
        return Content((9, told), entries)

    contents = agreed(
        replace(CONTROL, contents=saved(1, state=state(1, w=b"w", ema=b"e", time=b"1"))),
        replace(CONTROL, contents=saved(1, state=state(2, w=b"w", ema=b"e", time=b"2"))),
    )
    against = replace(beside(), contents=contents)
    one = replace(CONTROL, contents=saved(1, state=state(1, w=b"w", ema=b"e", restarts=b"0")))
    restarted = saved(2, state=state(3, w=b"w", ema=b"e", restarts=b"1"))
    counted = replace(against, contents=agreed(one, one))
    assert judge(KILL, replace(struck(), contents=restarted), counted).outcome == "Fine"
    equal = saved(2, state=state(3, w=b"w", ema=b"e", time=b"3"))
    assert judge(KILL, replace(struck(), contents=equal), against).checkpoints == "Equal"
    forgotten = saved(2, state=state(3, w=b"w", ema=b"0"))
    (finding,) = judge(KILL, replace(struck(), contents=forgotten), against).findings
    assert "equal: state: ema (1 of 2 entries)" in finding.text


def test_bytes_that_differ_and_cannot_be_read_are_no_finding_and_are_named() -> None:
    one = replace(CONTROL, contents=saved(1, odd=Content((1, 1))))
    against = replace(beside(), contents=agreed(one, one))
    told = judge(KILL, replace(struck(), contents=saved(2, odd=Content((1, 2)))), against)
    assert (told.outcome, told.checkpoints, told.unclear) == ("Fine", "NotCompared", ("odd",))


def test_a_log_beside_a_save_in_the_scripts_folder_is_not_compared() -> None:
    """On a busy machine a sound script was told that its save lacks something: log.txt."""
    names = ("checkpoint-3/model.bin", "checkpoint-30/model.bin", "checkpoint-30", "log.txt")
    files = {name: Content((1, number)) for number, name in enumerate(names)}
    assert [*of_save(files, ["checkpoint-30"])] == ["checkpoint-30/model.bin", "checkpoint-30"]
