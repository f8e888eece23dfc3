"""Random lives of scripts that nobody changed: never a bad resume, and what was whole is not lost.

Takes are late, void or overtaken; processes die in the middle of a save; checkpoints are damaged.
"""

from __future__ import annotations

import pytest

from tests.simulation.folder_lives import mistake_in_folder
from tests.simulation.nightly import ONE_IN, OWN_FOLDER, folder_mistake
from tests.simulation.world import own_folder
from tests.simulation.world.own_folder import SimFolder
from tests.support.first_life import first_life, told_on_failure
from tests.support.levels import examples
from trainrun.agent.folder.entries import Quiet

LIVES = examples(30)


def test_no_save_is_resumed_that_is_not_whole_and_none_is_lost_that_was() -> None:
    first = first_life() + OWN_FOLDER
    for number in range(first, first + LIVES * ONE_IN, ONE_IN):
        with told_on_failure(number):
            assert not (found := folder_mistake(number)), found


def first_mistake() -> str:
    return next(filter(None, map(mistake_in_folder, range(200))), "")


@pytest.mark.slow
def test_newer_saves_that_stay_in_a_restored_folder_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_folder, "outdated", lambda *_, **__: [])
    assert "that was never finished" in first_mistake()


@pytest.mark.slow
def test_saves_that_are_taken_without_being_quiet_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Quiet, "look", lambda _, entries, __: [*entries])
    monkeypatch.setattr(SimFolder, "_unfinished", lambda *_: False)
    assert "that was never finished" in first_mistake()


@pytest.mark.slow
def test_a_seen_save_that_is_not_taken_after_a_death_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SimFolder, "_last", lambda *_, **__: None)
    monkeypatch.setattr(SimFolder, "_take", lambda *_, **__: False)
    assert "was whole" in first_mistake()


@pytest.mark.slow
def test_saves_of_a_script_that_started_over_and_are_taken_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_folder, "ignores", lambda *_: "")
    assert "was restored" in first_mistake()
