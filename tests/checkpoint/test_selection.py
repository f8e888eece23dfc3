"""The pure rules: complete, fenced, newest, damaged, superfluous; on thousands of random stores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.memory_store import MemoryStore
from trainrun.checkpoint.records import DoneMarker, Manifest, ManifestFile
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.selection import (
    Folder,
    ObjectInfo,
    Score,
    all_parts_done,
    deletion_order,
    fenced_by,
    group,
    newest_first,
    superfluous,
)
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId


def cid(attempt: int, step: int) -> CheckpointId:
    return CheckpointId(attempt=attempt, step=step)


def a_folder(attempt: int, step: int, *, committed: bool = True) -> Folder:
    sizes = {"worker-00000/a": 1, "worker-00000.done.json": 2}
    sizes |= {layout.MANIFEST: 3} if committed else {}
    return Folder(id=cid(attempt, step), sizes=sizes, modified=0.0)


def marker(worker: int, workers: int) -> DoneMarker:
    return DoneMarker(attempt=1, step=1, worker=worker, workers=workers)


ids = st.builds(cid, st.integers(1, 5), st.integers(0, 12))
folders = st.dictionaries(ids, st.booleans(), max_size=12).map(
    lambda found: {key: a_folder(key.attempt, key.step, committed=ok) for key, ok in found.items()}
)
resumes = st.dictionaries(st.integers(1, 6), st.none() | ids, max_size=6)
scores = st.sampled_from([Score(metric="loss", order="Max"), Score(metric="loss", order="Min")])


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_the_name_of_a_folder_is_read_back(step: int, attempt: int) -> None:
    assert CheckpointId.named(cid(attempt, step).name) == cid(attempt, step)


@pytest.mark.parametrize(
    "name", ["step-1-attempt-1", "step-000000001", "step-0000000001-attempt-1", "x", ""]
)
def test_other_names_are_no_checkpoints(name: str) -> None:
    assert CheckpointId.named(name) is None


def test_a_listing_is_sorted_into_checkpoints_and_strangers_are_ignored() -> None:
    keys = {
        "checkpoints/step-000000001-attempt-1/manifest.json": 5,
        "checkpoints/step-000000001-attempt-1/worker-00000/worker-00001.done.json": 6,
        "checkpoints/step-000000001-attempt-1/worker-00001.done.json": 7,
        "checkpoints/notes.txt": 1,
        "checkpoints/step-000000002-attempt-1": 1,
        "checkpoints/somebody-elses/notes.txt": 1,
    }
    found = group(ObjectInfo(key=key, size=size, modified=size) for key, size in keys.items())
    assert list(found) == [cid(1, 1)]
    assert found[cid(1, 1)].done == {1}
    assert found[cid(1, 1)].has_manifest
    assert found[cid(1, 1)].modified == 5


def test_a_checkpoint_that_is_not_committed_is_as_old_as_its_newest_object() -> None:
    ages = {"worker-00000/a": 3.0, "worker-00000.done.json": 7.0, "worker-00001/a": 5.0}
    folder = "checkpoints/step-000000001-attempt-1"
    found = group(ObjectInfo(key=f"{folder}/{n}", size=1, modified=at) for n, at in ages.items())
    assert found[cid(1, 1)].modified == 7.0


def test_a_checkpoint_that_two_attempts_have_started_from_is_fenced_by_none_between() -> None:
    assert fenced_by(cid(1, 20), {2: cid(1, 20), 3: cid(1, 10), 4: cid(1, 20)}) is None


def test_a_checkpoint_is_fenced_by_a_later_attempt_that_started_from_something_older() -> None:
    assert fenced_by(cid(1, 20), {1: None, 2: cid(1, 10)}) == 2
    assert fenced_by(cid(1, 20), {1: None, 2: None}) == 2


def test_a_checkpoint_from_which_a_later_attempt_started_is_not_fenced_by_those_before() -> None:
    assert fenced_by(cid(1, 20), {2: None, 3: cid(1, 20)}) is None
    assert fenced_by(cid(1, 20), {2: None, 3: cid(1, 20), 4: cid(1, 10)}) == 4


def test_a_checkpoint_is_not_fenced_by_who_started_from_it_or_from_something_newer() -> None:
    assert fenced_by(cid(1, 20), {2: cid(1, 20), 3: cid(2, 5)}) is None
    assert fenced_by(cid(2, 20), {1: None, 2: None}) is None


@given(ids, resumes)
def test_a_fence_is_always_later_and_older(
    key: CheckpointId, started: dict[int, CheckpointId | None]
) -> None:
    attempt = fenced_by(key, started)
    used = max((n for n, start in started.items() if start == key), default=0)
    later = {n: start for n, start in started.items() if n > max(key.attempt, used)}
    if attempt is not None:
        start = later[attempt]
        assert start is None or start < key
    else:
        assert all(start is not None and start >= key for start in later.values())


@given(folders, resumes)
def test_candidates_come_newest_first_and_none_is_fenced(
    found: dict[CheckpointId, Folder], started: dict[int, CheckpointId | None]
) -> None:
    candidates = [folder.id for folder in newest_first(found, started)]
    assert candidates == sorted(candidates, reverse=True)
    assert {key for key in found if fenced_by(key, started) is None} == set(candidates)


def test_parts_are_done_when_every_worker_of_one_world_is() -> None:
    assert all_parts_done([marker(1, 2), marker(0, 2)])
    assert not all_parts_done([marker(1, 2)])
    assert not all_parts_done([marker(0, 1), marker(1, 2)])
    assert not all_parts_done([marker(0, 2), marker(5, 2)])
    assert not all_parts_done([])


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"worker-00000/a": 5}, None),
        ({"worker-00000/a": 5, "worker-00000/extra": 1}, None),
        ({}, "worker-00000/a: missing"),
        ({"worker-00000/a": 4}, "worker-00000/a: 4 bytes, should be 5"),
        ({"worker-00000/a": 0}, "worker-00000/a: 0 bytes, should be 5"),
        ({"worker-00001/a": 5}, "worker-00000/a: missing"),
    ],
)
def test_damage_that_a_listing_shows_is_named(sizes: dict[str, int], reason: str | None) -> None:
    item = ManifestFile(name="a", size=5, crc32=1, worker=0, ranks=(0,))
    manifest = Manifest(attempt=1, step=1, workers=1, files=(item,))
    run = RunStore(MemoryStore(), "digits")
    for name, size in sizes.items():
        run.store.put(run.key(layout.folder(manifest.id) + name), bytes(size))
    assert run.damage(run.folder(manifest.id), manifest) == reason


def test_a_manifest_of_another_checkpoint_is_damage() -> None:
    manifest = Manifest(attempt=1, step=2, workers=1)
    folder = Folder(id=cid(1, 1), sizes={}, modified=0.0)
    found = RunStore(MemoryStore(), "digits").damage(folder, manifest)
    assert found == "manifest.json: it belongs to step-000000002-attempt-1"


def test_retention_keeps_the_newest_and_the_resume_points() -> None:
    found = {cid(1, step): a_folder(1, step) for step in range(0, 100, 10)}
    gone = superfluous(found, attempt=1, keep=3, bad=(), resumes={1: None})
    assert gone == [cid(1, step) for step in range(0, 70, 10)]
    started = {1: None, 2: cid(1, 20), 3: cid(1, 30)}
    found |= {cid(3, step): a_folder(3, step) for step in (40, 50, 60)}
    gone = superfluous(found, attempt=3, keep=2, bad=(), resumes=started)
    assert cid(1, 20) not in gone
    assert cid(1, 30) not in gone
    assert cid(1, 10) in gone
    assert cid(1, 90) in gone  # fenced by attempt 2


def test_retention_leaves_what_the_attempt_may_still_upload() -> None:
    found = {cid(2, step): a_folder(2, step) for step in (10, 20)}
    found[cid(2, 15)] = a_folder(2, 15, committed=False)
    found[cid(2, 5)] = a_folder(2, 5, committed=False)
    found[cid(1, 99)] = a_folder(1, 99, committed=False)
    gone = superfluous(found, attempt=2, keep=2, bad=(), resumes={1: None, 2: None})
    assert gone == [cid(1, 99), cid(2, 5)]


def test_the_best_are_kept_instead_of_the_newest_but_for_the_two_newest() -> None:
    found = {cid(1, step): a_folder(1, step) for step in range(0, 100, 10)}
    found[cid(1, 75)] = a_folder(1, 75, committed=False)
    found[cid(1, 85)] = a_folder(1, 85, committed=False)
    values = {cid(1, 0): 0.1, cid(1, 20): 0.9, cid(1, 50): 0.8, cid(1, 60): 0.8, cid(1, 90): 0.3}
    gone = superfluous(
        found,
        attempt=1,
        keep=2,
        bad={cid(1, 20)},
        resumes={1: None},
        unread={cid(1, 10)},
        score=Score(metric="accuracy", order="Max"),
        values=values,
    )
    kept = [10, 50, 60, 80, 85, 90]  # what is not read well, the best, the newest, what may come
    assert [key.step for key in sorted(found) if key not in gone] == kept


@given(
    found=folders,
    started=resumes,
    attempt=st.integers(1, 6),
    keep=st.integers(2, 4),
    values=st.dictionaries(ids, st.floats(allow_nan=False), max_size=12),
    score=scores,
)
def test_with_a_score_nothing_is_deleted_that_may_be_needed_and_nothing_twice(
    *,
    found: dict[CheckpointId, Folder],
    started: dict[int, CheckpointId | None],
    attempt: int,
    keep: int,
    values: dict[CheckpointId, float],
    score: Score,
) -> None:
    started = {number: resume for number, resume in started.items() if number <= attempt}

    def doomed(among: dict[CheckpointId, Folder]) -> list[CheckpointId]:
        return superfluous(
            among,
            attempt=attempt,
            keep=keep,
            bad=(),
            resumes=started,
            score=score,
            values=values,
        )

    gone = set(doomed(found))
    usable = [folder.id for folder in newest_first(found, started) if folder.has_manifest]
    needed = {*usable[:2], *score.best_first(values, usable)[:keep]}
    assert not gone & needed
    assert not gone & {started[number] for number in sorted(started)[-2:]}
    assert not any(key.attempt > attempt for key in gone)
    assert not any(found[key].has_manifest for key in gone if len(usable) < 2)
    assert doomed({key: it for key, it in found.items() if key not in gone}) == []


@given(folders, resumes, st.integers(1, 6), st.integers(2, 4), st.sets(ids, max_size=3))
def test_retention_never_touches_what_may_be_needed(
    found: dict[CheckpointId, Folder],
    started: dict[int, CheckpointId | None],
    attempt: int,
    keep: int,
    bad: set[CheckpointId],
) -> None:
    started = {number: resume for number, resume in started.items() if number <= attempt}
    gone = set(superfluous(found, attempt=attempt, keep=keep, bad=bad, resumes=started))
    usable = [
        folder.id
        for folder in newest_first(found, started)
        if folder.has_manifest and folder.id not in bad
    ]
    last_two = {started[number] for number in sorted(started)[-2:]}
    assert not gone & set(usable[:keep])
    assert not gone & last_two
    assert not any(key.attempt > attempt for key in gone)
    open_now = {k for k, f in found.items() if k.attempt == attempt and not f.has_manifest}
    oldest_kept = usable[:keep][-1] if len(usable) >= keep else None
    assert all(oldest_kept is not None and key < oldest_kept for key in gone & open_now)
    if len(usable) < 2:
        assert not any(found[key].has_manifest for key in gone)


@given(folders, resumes, st.integers(1, 6), st.integers(2, 4))
def test_retention_has_nothing_to_do_twice(
    found: dict[CheckpointId, Folder],
    started: dict[int, CheckpointId | None],
    attempt: int,
    keep: int,
) -> None:
    gone = superfluous(found, attempt=attempt, keep=keep, bad=(), resumes=started)
    rest = {key: folder for key, folder in found.items() if key not in gone}
    assert superfluous(rest, attempt=attempt, keep=keep, bad=(), resumes=started) == []


def test_the_manifest_is_deleted_first_and_files_last() -> None:
    folder = a_folder(1, 1)
    assert deletion_order(folder) == (
        ["manifest.json"],
        ["worker-00000.done.json"],
        ["worker-00000/a"],
    )


def committed(*ids: tuple[int, int]) -> dict[CheckpointId, Folder]:
    return {cid(*each): a_folder(*each) for each in ids}


def test_a_checkpoint_that_could_not_be_judged_takes_no_place_of_those_that_are_kept() -> None:
    found = committed((1, 1), (1, 2), (1, 3))
    given = {"attempt": 2, "keep": 2, "bad": (), "resumes": {}}
    assert superfluous(found, unread={cid(1, 3)}, **given) == []
    assert superfluous(found, **given) == [cid(1, 1)]


def test_the_resume_points_of_the_last_two_attempts_are_kept_and_no_third() -> None:
    found = committed((1, 1), (1, 2), (1, 3), (4, 8), (4, 9))
    started = {2: cid(1, 1), 3: cid(1, 2), 4: cid(1, 3)}
    gone = superfluous(found, attempt=4, keep=2, bad=(), resumes=started)
    assert gone == [cid(1, 1)]


def test_a_score_that_nobody_has_reported_keeps_the_two_newest() -> None:
    found = committed((1, 1), (1, 2), (1, 3))
    best = Score(metric="loss", order="Min")
    gone = superfluous(found, attempt=1, keep=2, bad=(), resumes={}, score=best)
    assert cid(1, 3) not in gone
    assert cid(1, 2) not in gone


def test_the_first_checkpoint_of_an_attempt_may_still_be_uploading_whatever_its_step() -> None:
    begun = {cid(2, 0): a_folder(2, 0, committed=False), **committed((1, 5))}
    assert superfluous(begun, attempt=2, keep=2, bad=(), resumes={}) == []


def test_while_less_than_two_are_good_nothing_that_was_committed_is_deleted() -> None:
    left = {cid(1, 3): a_folder(1, 3, committed=False)}
    found = committed((1, 1), (1, 2)) | left
    given = {"attempt": 2, "keep": 2, "bad": {cid(1, 1)}, "resumes": {}}
    assert superfluous(found, **given) == [cid(1, 3)]
    assert superfluous(found | committed((2, 4)), **given) == [cid(1, 1), cid(1, 3)]


def test_what_a_later_attempt_uploads_is_left_alone_by_one_that_does_not_know_of_it() -> None:
    found = {cid(3, 1): a_folder(3, 1, committed=False), **committed((4, 1), (4, 2))}
    assert superfluous(found, attempt=2, keep=2, bad=(), resumes={}) == []
