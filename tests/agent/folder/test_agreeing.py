from __future__ import annotations

from dataclasses import replace

import pytest

from trainrun._common.tree import TreeEntry
from trainrun.agent.folder.agreeing import GangPart, parts_of, place_of, role_of
from trainrun.agent.folder.entries import FileFacts, FolderEntry, Look, entries_of
from trainrun.checkpoint.records import Manifest, ManifestFile

SETTLE = 10.0
STATE = ("*/state.json",)


def look(*names: str, at: int = 1) -> Look:
    return {name: FileFacts(inode=at, size=5, modified=at * 1000) for name in names}


def a_part(*, complete: tuple[str, ...] = (), heard: float | None = None) -> GangPart:
    part = GangPart(settle=SETTLE, complete=complete)
    if heard is not None:
        part.hear([5], heard)
    return part


def shows(part: GangPart, *names: str, now: float, judged: bool = False) -> FolderEntry | None:
    seen = look(*names)
    entries = entries_of(seen, "step-*")
    part.look(seen, entries, now)
    for entry in entries if judged else ():
        part.judge(entry)
    return entries[-1] if entries else None


def test_a_worker_begins_with_its_newest_whole_save() -> None:
    part = a_part(complete=STATE)
    shows(part, "step-4/state.json", "step-5/a", now=0, judged=True)
    first = part.first()
    assert first is not None
    assert first.number == 4


def test_a_worker_whose_folder_is_quiet_has_nothing_for_a_save_of_another() -> None:
    part = a_part(heard=0)
    shows(part, "log.txt", now=0)
    assert part.part(5, SETTLE - 1) == "Later"
    assert part.part(5, SETTLE) == "Nothing"


def test_a_folder_in_which_anything_grows_is_not_quiet() -> None:
    part = a_part(heard=0)
    shows(part, "new.part", now=0)
    part.look(look("new.part", at=2), [], 8.0)
    assert part.part(5, SETTLE) == "Later"
    assert part.part(5, 8.0 + SETTLE) == "Nothing"


@pytest.mark.parametrize("now", [SETTLE, 1000.0])
def test_a_save_that_was_not_judged_is_waited_for(now: float) -> None:
    part = a_part(heard=0)
    shows(part, "step-5/a", now=0)
    assert part.part(5, now) == "Later"


def test_a_worker_that_once_had_a_whole_save_never_says_that_it_has_nothing() -> None:
    part = a_part(heard=0)
    shows(part, "step-4/a", now=0, judged=True)
    assert part.part(5, 1000.0) == "Later"
    part.hear([6], 1000.0)
    assert part.missed() == 5


def test_a_worker_that_lacks_the_files_of_complete_adds_what_it_has() -> None:
    part = a_part(complete=STATE, heard=0)
    entry = shows(part, "step-5/rng", now=0, judged=True)
    assert part.first() is None
    assert part.part(5, SETTLE - 1) == "Later"
    assert part.part(5, SETTLE) == entry
    part.took(entry)
    part.hear([6], 20.0)
    later = shows(part, "step-6/rng", now=20.0, judged=True)
    assert part.part(6, 20.0) == later  # the second time it need not wait


def test_a_worker_that_is_known_to_save_nothing_only_waits_for_quiet() -> None:
    part = a_part()
    part.role = "Nothing"
    shows(part, "log.txt", now=0)
    part.hear([5], 50.0)
    assert part.part(5, 50.0) == "Nothing"


def test_a_worker_that_begins_to_save_is_waited_for_as_at_first() -> None:
    part = a_part(complete=STATE)
    part.role = "Nothing"
    entry = shows(part, "step-5/rng", now=40.0, judged=True)
    part.hear([5], 50.0)
    assert part.part(5, 50.0) == "Later"
    assert part.part(5, 50.0 + SETTLE) == entry


def test_after_a_death_only_what_was_heard_of_is_lacking() -> None:
    part = a_part(heard=0)
    shows(part, "log.txt", now=0)
    assert part.lacks(5, 20.0, wrote_all=False)
    assert not part.lacks(6, 20.0, wrote_all=False)
    assert not part.lacks_all(20.0, wrote_all=False)
    assert part.lacks_all(20.0, wrote_all=True)
    part.took(None)
    assert part.lacks_all(20.0, wrote_all=False)
    shows(part, "step-6/half", now=30.0)
    assert not part.lacks_all(90.0, wrote_all=True)


def test_after_a_death_a_worker_brings_what_was_intact_and_others_have_begun() -> None:
    part = a_part(complete=STATE, heard=0)
    torn = shows(part, "step-5/rng", now=0)
    assert torn is not None
    assert not part.left(torn, intact=False)
    assert part.left(torn, intact=True)
    unheard = entries_of(look("step-6/rng"), "step-*")[0]
    assert not part.left(unheard, intact=True)  # perhaps no worker has its last file
    part.role = "Part"
    assert part.left(unheard, intact=True)
    part.role = "Whole"
    assert not part.left(torn, intact=True)


def test_a_worker_that_ended_well_owes_what_it_saved_and_did_not_bring() -> None:
    part = a_part()
    shows(part, "step-4/a", "step-6/a", now=0)
    shows(part, "step-6/a", now=1)
    assert [step for step in range(4, 9) if part.owes(step)] == [6]
    part.role = "Whole"
    assert [step for step in range(4, 9) if part.owes(step)] == [4, 5, 6]


def test_a_worker_that_ended_well_repeats_its_save_of_the_step_before() -> None:
    part = a_part()
    entry = shows(part, "step-6/a", now=0)
    assert entry is not None
    part.role = "Whole"
    assert part.last(7, {6: entry}.get) == entry  # perhaps slot 0's once more, with final models
    assert part.last(7, {}.get) == "Owed"
    assert part.last(6, {5: entry}.get) == "Owed"
    assert part.last(9, {6: entry}.get) == "Nothing"


def test_a_worker_that_never_saved_repeats_nothing() -> None:
    part = a_part(heard=0)
    shows(part, "log.txt", now=0)
    assert part.last(5, {}.get) == "Nothing"


def test_a_save_that_the_script_has_deleted_was_not_missed() -> None:
    part = a_part(heard=0)
    gone = shows(part, "step-5/a", now=0, judged=True)
    assert gone is not None
    shows(part, "log.txt", now=1)
    part.hear([6], 2)
    assert part.missed() is None
    assert not part.has_judged(gone)  # an entry may have thousands of files


def test_what_a_later_commit_replaces_is_forgotten() -> None:
    part = a_part(heard=0)
    shows(part, "step-5/a", now=0, judged=True)
    part.hear([6, 7], 1)
    part.forget(6)
    assert part.heard == (7,)
    assert part.hear([7, 8], 2) == [8]


@pytest.mark.parametrize(
    ("names", "role"),
    [
        ((), "Nothing"),
        (("log.txt", "args.json"), "Nothing"),
        (("step-5/rng",), "Part"),
        (("step-5/rng", "step-5/state.json"), "Whole"),
    ],
)
def test_an_earlier_checkpoint_shows_what_a_worker_saves(names: tuple[str, ...], role: str) -> None:
    assert role_of(names, "step-*", STATE) == role


def test_files_of_distributed_checkpoints_without_metadata_are_a_part() -> None:
    assert role_of(["step-5/__1_0.distcp"], "step-*", ()) == "Part"
    assert role_of(["step-5/__1_0.distcp", "step-5/.metadata"], "step-*", ()) == "Whole"


def a_manifest(workers: int, *names: tuple[int, str]) -> Manifest:
    files = (
        ManifestFile(
            name=place_of(slot) + name,
            size=5,
            crc32=1,
            worker=slot,
            ranks=(slot * 4,),
            modified=1,
        )
        for slot, name in names
    )
    return Manifest(attempt=1, step=5, workers=workers, files=tuple(files), metrics={})


THREE = ((0, "step-5/a"), (0, "step-5/b"), (0, "log.txt"), (1, "step-5/a"), (2, "step-5/c"))


def test_a_worker_gets_its_own_part_and_what_slot_0_has_beside() -> None:
    parts = parts_of(a_manifest(3, *THREE), 1, 3)
    assert [(s.slot, s.rank, sorted(s.without)) for s in parts.sources] == [
        (1, 4, []),
        (0, 0, ["log.txt", "step-5/a"]),
    ]
    assert parts.own == {"step-5/a"}
    assert parts.lent_to(look("step-5/b"))
    assert not parts.lent_to(look("step-5/b", at=2))
    assert not parts.lent_to(look("step-5/a"))


def test_slot_0_needs_nothing_of_others() -> None:
    parts = parts_of(a_manifest(3, *THREE), 0, 3)
    assert [s.slot for s in parts.sources] == [0]
    assert not parts.lent


def test_a_worker_without_a_part_gets_that_of_slot_0() -> None:
    parts = parts_of(a_manifest(2, (0, "step-5/a")), 1, 2)
    assert [(s.slot, s.rank, s.without) for s in parts.sources] == [(0, None, frozenset())]
    assert parts.own == frozenset()


@pytest.mark.parametrize("slot", [0, 2])
def test_workers_get_the_files_of_the_only_one_that_saved_and_not_its_place(slot: int) -> None:
    place = TreeEntry(name=".trainrun-worker-1", folder=True, ranks=(4,))
    manifest = replace(a_manifest(3, (1, "step-5/a")), others=(place,))
    parts = parts_of(manifest, slot, 3)
    assert [(s.slot, s.rank, s.without) for s in parts.sources] == [(1, None, frozenset())]
    assert [*parts.lent] == ["step-5/a"]
    assert parts.own == frozenset()


def test_a_worker_that_only_repeated_an_older_save_gets_the_new_one() -> None:
    manifest = a_manifest(2, (0, "step-7/a"), (1, "step-8/a"))
    assert [s.slot for s in parts_of(manifest, 0, 2, ("step-8",)).sources] == [0, 1]
    assert [s.slot for s in parts_of(manifest, 1, 2, ("step-8",)).sources] == [1]
    assert [s.slot for s in parts_of(manifest, 1, 2, ("step-7",)).sources] == [1, 0]


def test_another_number_of_workers_gets_all_parts() -> None:
    parts = parts_of(a_manifest(3, *THREE), 1, 2)
    assert [s.slot for s in parts.sources] == [1, 0, 2]
    assert sorted(parts.lent) == ["step-5/b", "step-5/c"]
    assert parts.own is None


def test_links_that_another_worker_has_are_compared_by_where_they_lead() -> None:
    link = TreeEntry(name="last", target="step-5", ranks=(0,))
    folder = TreeEntry(name="step-5/empty", folder=True, ranks=(0,))
    manifest = Manifest(attempt=1, step=5, workers=2, files=(), others=(link, folder), metrics={})
    parts = parts_of(manifest, 1, 2)
    there = FileFacts(inode=1, size=1, modified=1, target="step-5")
    assert parts.lent_to({"last": there})
    assert not parts.lent_to({})
