from __future__ import annotations

import pytest

from trainrun.agent.folder.entries import (
    FileFacts,
    FolderEntry,
    Look,
    Quiet,
    entries_of,
    expression,
    loose,
    number_of,
    unfit,
)


def look(*names: str, **sizes: int) -> Look:
    return {
        name: FileFacts(inode=at, size=sizes.get(name, 5), modified=at)
        for at, name in enumerate(names)
    }


@pytest.mark.parametrize(
    ("name", "newest", "number"),
    [
        ("checkpoint-500", "checkpoint-*", 500),
        ("ema_0.99_000500.pt", "*.pt", 500),
        ("model000500.pt", "*[0-9].pt", 500),
        ("epoch=3-step=300.ckpt", "*.ckpt", 300),
        ("epoch=3-step=300-v1.ckpt", "*.ckpt", 300),
        ("step_100/model.pt", "step_*/model.pt", 100),
        ("gpt2_last.pt", "gpt2_*.pt", None),
        ("gpt2.pt", "gpt2.pt", None),
        ("best_0.12.pt", "best_*.pt", None),
        ("save-20261128123456789.pt", "save-*.pt", None),
    ],
)
def test_the_number_of_a_save_stands_for_the_wildcards_of_its_pattern(
    name: str, newest: str, number: int | None
) -> None:
    assert number_of(name, newest) == number


def test_files_with_the_same_number_are_one_save_and_the_highest_is_the_newest() -> None:
    files = look("model000020.pt", "opt000020.pt", "ema_0.99_000020.pt", "model000003.pt", "a.json")
    found = entries_of(files, "*[0-9].pt")
    assert [(entry.number, entry.names) for entry in found] == [
        (3, ("model000003.pt",)),
        (20, ("ema_0.99_000020.pt", "model000020.pt", "opt000020.pt")),
    ]


def test_a_fixed_name_in_a_folder_of_each_start_is_a_save_of_its_own() -> None:
    """timm and YOLOv5 without a name: the last number there need not tell the starts apart."""
    starts = ("20261129-1022-resnet50-224/last.pt", "20261129-1105-resnet50-224/last.pt")
    assert [entry.names for entry in entries_of(look(*starts), "*/last.pt")] == [
        ("20261129-1022-resnet50-224/last.pt",),
        ("20261129-1105-resnet50-224/last.pt",),
    ]


@pytest.mark.parametrize(
    ("name", "newest", "final"),
    [
        ("checkpoint-500/model.pt", "checkpoint-*", True),
        ("model000500.pt", "*.pt", True),
        ("exp2/weights/last.pt", "exp*/weights/last.pt", False),
        ("exp2/yolov8n.pt", "exp*/yolov8n.pt", False),
        ("last.pt", "last.pt", False),
    ],
)
def test_a_name_without_the_number_itself_is_overwritten_in_place(
    name: str, newest: str, final: bool
) -> None:
    (entry,) = entries_of(look(name), newest)
    assert entry.final == final


def test_what_is_overwritten_under_its_number_is_new_and_what_is_deleted_is_not() -> None:
    (taken,) = entries_of(look("x", "exp2/last.pt", "exp2/a.pt"), "exp*")
    (again,) = entries_of(look("exp2/last.pt"), "exp*")
    (less,) = entries_of(look("x", "exp2/last.pt"), "exp*")
    assert not again.is_over(taken)
    assert less.is_over(taken)
    (older,) = entries_of(look("exp1/last.pt"), "exp*")
    assert older.is_over(taken)
    assert not taken.is_over(older)
    assert not taken.is_over(None)


def test_saves_without_a_number_are_ordered_by_their_time_of_change() -> None:
    found = entries_of(look("b.pt", "a.pt"), "*.pt")
    assert [entry.names for entry in found] == [("b.pt",), ("a.pt",)]


def test_without_a_pattern_the_folder_is_one_save_and_its_logs_decide_nothing() -> None:
    files = look("ckpt.pt", "log.txt", "wandb/run/files/x", "events.out.tfevents.1.host")
    (entry,) = entries_of(files, "")
    assert (entry.number, entry.names, list(entry.files)) == (None, (), ["ckpt.pt"])
    assert list(loose(files, "", models=False)) == [name for name in files if name != "ckpt.pt"]


def test_a_link_to_a_save_is_no_save() -> None:
    files = {**look("step-1/x"), "step-9": FileFacts(inode=9, size=6, modified=9, target="step-1")}
    assert [entry.number for entry in entries_of(files, "step-*")] == [1]
    assert list(loose(files, "step-*", models=False)) == ["step-9"]


def test_a_star_does_not_match_a_slash() -> None:
    assert expression("*/state.json").fullmatch("a/b/state.json") is None
    assert expression("**/state.json").fullmatch("a/b/state.json")
    assert expression("[!x]?.p+").fullmatch("ay.p+")


def test_a_save_without_a_file_that_must_be_there_says_which() -> None:
    (entry,) = entries_of(look("step-1/model.bin"), "step-*")
    assert unfit(entry, ("*/model.bin",)) == ""
    assert unfit(entry, ("*/model.bin", "*/done")) == "no file matches complete: */done"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("step-1/\udcff", "its name is not UTF-8"),
        ("step-1/model.tmp", "step-1/model.tmp has a temporary name"),
        ("step-1/empty", "step-1/empty is empty"),
    ],
)
def test_a_save_with_a_file_that_no_finished_save_has_says_which(name: str, why: str) -> None:
    (entry,) = entries_of(look(name, **{"step-1/empty": 0}), "step-*")
    assert why in unfit(entry, ())


def test_a_save_is_quiet_once_two_looks_that_far_apart_show_no_change() -> None:
    quiet, (entry,) = Quiet(settle=10), entries_of(look("step-1/a"), "step-*")
    assert quiet.look([entry], 0) == []
    assert quiet.look([entry], 9) == []
    changed = FolderEntry(number=1, names=entry.names, files=look("x", "step-1/a"))
    assert quiet.look([changed], 11) == []
    assert quiet.look([changed], 22) == [changed]


def test_looks_that_show_no_quiet_save_are_counted() -> None:
    quiet = Quiet(settle=10)
    for at in range(3):
        quiet.look(entries_of(look(*"x" * at, "last.pt"), "last.pt"), 5 * at)
    assert quiet.restless == 3
    quiet.look([], 20)
    assert quiet.restless == 0


def test_a_save_that_was_gone_at_a_look_is_new_again() -> None:
    quiet, (entry,) = Quiet(settle=10), entries_of(look("step-1/a"), "step-*")
    quiet.look([entry], 0)
    quiet.look([], 5)
    assert quiet.look([entry], 11) == []


def test_saves_without_a_number_are_ordered_by_our_clock_although_that_of_the_files_jumps() -> None:
    quiet = Quiet(settle=1)
    ahead, first = look("x", "y", "best.pt")["best.pt"], look("last.pt")["last.pt"]
    behind = FileFacts(inode=9, size=5, modified=-5)  # the clock was put back before this save
    both = entries_of({"best.pt": ahead, "last.pt": first}, "*.pt")
    later = entries_of({"best.pt": ahead, "last.pt": behind}, "*.pt")
    quiet.look(both, 0)
    quiet.look(later, 3)
    assert [entry.names for entry in quiet.look(later, 5)] == [("best.pt",), ("last.pt",)]
