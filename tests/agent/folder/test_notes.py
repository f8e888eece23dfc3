from __future__ import annotations

import pytest

from trainrun.agent.folder.entries import FileFacts, FolderEntry, Look, entries_of
from trainrun.agent.folder.notes import (
    FolderMemory,
    FolderNote,
    Printed,
    ignores,
    is_resumed,
    left_over,
    outdated,
)
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import OutputProgress


def look(*names: str, at: int = 1) -> Look:
    return {name: FileFacts(inode=at, size=5, modified=at) for name in names}


def output(step: int | None, *, first: int = 0) -> OutputProgress:
    return OutputProgress(rank=0, form="nanoGPT", line="iter 0", first=first, step=step)


def save(name: str, pattern: str = "step-*") -> FolderEntry:
    return entries_of(look(name), pattern)[-1]


def test_a_note_comes_back_from_the_metadata_of_its_checkpoint() -> None:
    note = FolderNote(names=("step-1",), number=1, printed=3, began=0)
    assert FolderNote.read(note.metadata) == note
    assert FolderNote.read({"mine": 1}) is None
    assert FolderNote.read({"folder": {"names": 7}}) is None


def test_saves_newer_than_the_restored_one_are_outdated_and_older_ones_are_not() -> None:
    now = look("step-1/a", "step-2/a", "step-2/torn", "step-3/a", "log.txt")
    found = outdated(now, "step-*", 2, stored=["step-2/a"], before={})
    assert found == ["step-2/torn", "step-3/a"]


def test_what_was_there_before_the_first_attempt_is_never_outdated() -> None:
    before = look("step-9/a")
    now = {**before, **look("step-3/a", at=7)}
    assert outdated(now, "step-*", 2, before=before) == ["step-3/a"]
    assert outdated(now, "step-*", -1, before=before) == ["step-3/a"]


def test_without_a_pattern_all_that_the_restored_folder_lacks_is_outdated() -> None:
    now = look("ckpt.pt", "other.pt", "log.txt")
    assert outdated(now, "", None, stored=["ckpt.pt"], before={}) == ["other.pt"]


def test_without_a_save_logs_are_left_over_if_nothing_else_is_there() -> None:
    """Hugging Face's examples refuse an output folder that is not empty and has no checkpoint."""
    before = look("old.txt")
    gone, save = ["log.txt", "runs/events.out.tfevents.1"], "checkpoint-40/model.bin"
    logs = {**before, **look(*gone)}
    half = {**logs, **look(save)}
    other = {**half, **look("cache.bin")}
    assert left_over(logs, "checkpoint-*", before=before, own=True) == gone
    assert left_over(half, "checkpoint-*", before=before, own=True) == [save, *gone]
    assert left_over(other, "checkpoint-*", before=before, own=True) == [save]
    assert left_over(half, "checkpoint-*", before=before, own=False) == [save]
    assert left_over(half, "checkpoint-*/*.bin", before=before, own=True) == [save]


def test_saves_without_a_number_are_outdated_if_they_changed_later() -> None:
    now = {**look("a.pt", at=5), **look("b.pt", at=9)}
    assert outdated(now, "*.pt", None, stored=[], at=7, before={}) == ["b.pt"]


def test_a_first_save_below_the_restored_one_shows_that_the_script_started_over() -> None:
    note = FolderNote(names=("step-5",), number=5)
    assert ignores(note, save("step-3/a"), {}, None) == "it saved step-3"
    assert ignores(note, save("step-6/a"), {}, None) == ""
    assert ignores(note, save("step-3/a"), look("step-3/a"), None) == ""  # it was there


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (output(20), "its output began at step 0 and is at step 20, before 30"),
        (output(30), ""),  # a bar begins at 0 and jumps
        (output(25, first=24), ""),  # its epoch begins again
        (output(None), ""),
        (None, ""),
    ],
)
def test_output_that_begins_as_from_scratch_and_is_behind_shows_it_too(
    shown: OutputProgress | None, why: str
) -> None:
    note = FolderNote(printed=30, began=0, form="nanoGPT")
    assert ignores(note, save("ckpt.pt", ""), {}, shown) == why


def test_a_script_that_printed_steps_is_known_to_have_resumed_once_it_prints_one() -> None:
    place = save("ckpt.pt", "")
    assert not is_resumed(FolderNote(printed=30), place, None)
    assert not is_resumed(FolderNote(printed=30), place, output(None))
    assert is_resumed(FolderNote(printed=30), place, output(31))
    assert is_resumed(FolderNote(), place, None)
    assert is_resumed(FolderNote(number=5, printed=30), save("step-6/a"), None)


def test_the_step_of_a_save_is_what_was_printed_before_it_changed_last() -> None:
    printed = Printed()
    printed.note(None, 5)
    assert printed.at(9) is None
    for at, step in ((10, 1), (20, 1), (30, 2)):
        printed.note(output(step), at)
    shown = [printed.at(when) for when in (9, 10, 29, 30)]
    assert [None if one is None else one.step for one in shown] == [None, 1, 1, 2]


def test_a_worker_remembers_how_its_last_saves_look() -> None:
    memory = FolderMemory()
    for step in range(9):
        memory.remember(CheckpointId(attempt=1, step=step), save("step-1/a"))
    assert [key.step for key in memory.stored] == [5, 6, 7, 8]


def test_steps_of_another_form_or_of_another_total_are_not_compared() -> None:
    note = FolderNote(printed=30, began=0, form="tqdm")
    assert ignores(note, save("ckpt.pt", ""), {}, output(20)) == ""
    note = FolderNote(printed=30, began=0, form="nanoGPT", total=100)
    assert ignores(note, save("ckpt.pt", ""), {}, output(20)) == ""
