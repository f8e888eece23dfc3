"""What the user reads while the storage of a local sweep refuses."""

from __future__ import annotations

from trainrun_operator.cli.sweeping.local_sweep import StorageTrouble

FULL = "cannot write log/000000004.json: No space left on device"


def test_a_disk_that_is_full_for_minutes_is_told_once_and_not_with_every_try() -> None:
    """Between two tries the log was read without error, and the line came again."""
    trouble = StorageTrouble()

    said = [trouble.news(text, settled=False) for text in (FULL, "", FULL, "", FULL)]

    waits = f"the sweep is waiting for its storage while trials continue: {FULL}"
    assert said == [waits, "", "", "", ""]


def test_another_trouble_and_the_same_one_after_it_was_over_are_told() -> None:
    trouble = StorageTrouble()

    assert FULL in trouble.news(FULL, settled=False)
    assert "away" in trouble.news("it is away", settled=False)
    assert trouble.news("", settled=True) == ""
    assert "away" in trouble.news("it is away", settled=False)
