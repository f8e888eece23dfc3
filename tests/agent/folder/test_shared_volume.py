from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainrun.agent.folder import shared_volume
from trainrun.agent.folder.entries import FolderEntry
from trainrun.agent.folder.looking import look_at
from trainrun.agent.folder.shared_volume import FolderChoice
from trainrun.contract.answer import FolderRule

RULE = FolderRule(path="out", newest="step-*", carry=False)
CHOICE = FolderChoice(run_id="run", since=0)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for step in (1, 2, 3):
        folder = tmp_path / "out" / f"step-{step}"
        folder.mkdir(parents=True)
        (folder / "model.bin").write_text(str(step))
    return tmp_path / "out"


def entries(top: Path, choice: FolderChoice = CHOICE) -> list[FolderEntry]:
    return shared_volume.of_the_run(look_at(top), RULE.newest, choice)


def chosen(top: Path, choice: FolderChoice) -> int | None:
    found = shared_volume.choose(top, RULE, entries(top, choice), choice)
    return found.number if found is not None else None


def test_the_newest_save_that_was_seen_complete_is_chosen(top: Path) -> None:
    first, second, _ = entries(top)
    assert chosen(top, CHOICE) is None
    assert chosen(top, CHOICE.saw(first)) == 1
    assert chosen(top, CHOICE.saw(second)) == 2


def test_a_save_that_has_changed_since_it_was_seen_is_not_chosen_but_one_before_it(
    top: Path,
) -> None:
    choice = CHOICE.saw(entries(top)[1])
    (top / "step-2" / "model.bin").write_text("longer")
    assert chosen(top, choice) == 1


def test_a_save_that_nobody_saw_counts_if_its_format_shows_that_it_is_whole(top: Path) -> None:
    (top / "step-3" / "model.bin").unlink()
    (top / "step-3" / "state.json").write_text(json.dumps({"step": 3}))
    assert chosen(top, CHOICE) == 3


def test_what_was_there_before_the_run_is_not_chosen(top: Path) -> None:
    newest = entries(top)[-1]
    choice = FolderChoice(run_id="run", since=newest.modified + 1).saw(newest)
    assert chosen(top, choice) is None


def test_the_choice_is_written_beside_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    top = tmp_path / "out"
    shared_volume.write(top, CHOICE)
    assert not top.exists()
    assert shared_volume.read(top, "run") == CHOICE
    assert shared_volume.read(top, "another run") is None
    top.mkdir()
    later = FolderChoice(run_id="run", since=0, attempt=2, path="out/step-1")
    shared_volume.write(top, later)
    assert shared_volume.read(top, "run") == later
    assert not look_at(top)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run_id": 7}'])
def test_a_choice_that_cannot_be_read_is_none(top: Path, text: str) -> None:
    shared_volume.write(top, CHOICE)
    (top / ".trainrun" / "resume.json").write_text(text)
    assert shared_volume.read(top, "run") is None


def test_the_mark_of_worker_0_counts_for_one_attempt_and_lies_beside_an_empty_folder(
    tmp_path: Path,
) -> None:
    top = tmp_path / "out"
    top.mkdir()
    shared_volume.leave_mark(top, "run", 1)
    assert [*top.iterdir()] == []
    assert shared_volume.has_mark(top, "run", 1)
    assert not shared_volume.has_mark(top, "run", 2)
    assert not shared_volume.has_mark(top, "another", 1)
    (top / "model.bin").touch()
    shared_volume.leave_mark(top, "run", 2)
    assert shared_volume.has_mark(top, "run", 2)
    assert [*look_at(top)] == ["model.bin"]
