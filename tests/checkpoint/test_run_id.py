"""The id by which trackers know a run."""

from __future__ import annotations

import pytest

from trainrun.checkpoint import ownership
from trainrun.contract import environment


def test_the_id_of_a_run_never_changes_from_version_to_version() -> None:
    assert ownership.derived_run_id("TrainRun uid 6e6f-1", "digits") == "qds44i3a6xuei7e7"


def test_another_name_or_another_beginning_is_another_run() -> None:
    found = {
        ownership.derived_run_id(created_by, name)
        for created_by in ("TrainRun uid a", "TrainRun uid b")
        for name in ("digits", "digits-2")
    }
    assert len(found) == 4


def test_an_id_is_safe_as_the_name_of_anything() -> None:
    made = ownership.derived_run_id("TrainRun uid ü€\"'", "n" * 300)
    assert len(made) == ownership.RUN_ID_LENGTH
    assert environment.valid_run_id(made) == made


@pytest.mark.parametrize("text", ["", "a" * 33, "A", "../x", "a b", "ü", "a\n", "a-b"])
def test_what_is_no_id_is_taken_for_none(text: str) -> None:
    assert environment.valid_run_id(text) == ""
