"""An attempt that starts from a checkpoint on the workers' disks, as the store knows it."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, checkpoint_id, contents, materialize
from trainrun.checkpoint.description import (
    describe_part,
    merge_descriptions,
    read_described,
    sum_ahead,
)
from trainrun.checkpoint.inspection import list_checkpoints, next_resolution
from trainrun.checkpoint.records import AttemptRecord
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.writer import Upload, check_fence, scan, set_aside, write_part
from trainrun.contract import layout
from trainrun.errors import (
    CheckpointConflict,
    CheckpointDamaged,
    CheckpointFenced,
    CheckpointUnfinished,
    StoreError,
    TransferCancelled,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POINT = checkpoint_id(1, 10)
OLD = checkpoint_id(1, 9)


@pytest.fixture
def begun(any_bench: Bench) -> Bench:
    """Step 5 of attempt 1 is stored, step 10 is described by both workers."""
    any_bench.resolve(1)
    any_bench.commit(step=5)
    any_bench.described(10)
    return any_bench


def test_a_described_checkpoint_is_claimed_if_it_is_newer(begun: Bench) -> None:
    answer = begun.resolve(2, staged=POINT)
    assert (answer.outcome, answer.resume, answer.staged) == ("Resolved", POINT, True)
    assert answer.message == (
        "resume from step-000000010-attempt-1, which is on the workers' disks"
    )
    record = begun.run.read(AttemptRecord, "attempts/000002.json")
    assert (record.resume, record.staged) == (POINT, True)
    again = begun.resolve(2, staged=POINT)
    assert (again.outcome, again.resume, again.staged) == ("Resolved", POINT, True)


def test_what_no_request_names_does_not_exist(begun: Bench) -> None:
    assert begun.resolve(2).resume == checkpoint_id(1, 5)
    assert next_resolution(begun.run).resume == checkpoint_id(1, 5)


def test_a_stored_checkpoint_that_is_newer_wins(begun: Bench) -> None:
    begun.commit(step=20)
    answer = begun.resolve(2, staged=POINT)
    assert (answer.resume, answer.staged) == (checkpoint_id(1, 20), False)


def test_one_that_was_stored_meanwhile_is_read_from_the_store(begun: Bench) -> None:
    begun.commit(step=10)
    answer = begun.resolve(2, staged=POINT)
    assert (answer.resume, answer.staged) == (POINT, False)


def test_a_claim_holds_once_it_is_stored_whoever_asks(begun: Bench) -> None:
    begun.resolve(2, staged=POINT)
    begun.commit(step=10)
    again = begun.resolve(2)
    assert (again.outcome, again.resume) == ("Resolved", POINT)


def test_a_stored_checkpoint_that_is_lost_is_not_taken_for_one_on_the_disks(begun: Bench) -> None:
    begun.commit(step=10)
    assert begun.resolve(2).resume == POINT
    begun.run.store.delete([begun.run.key(layout.folder(POINT) + layout.MANIFEST)])
    assert begun.resolve(2, staged=POINT).outcome == "Behind"


@pytest.mark.parametrize("damaged", [layout.described_name(1), layout.STAGED])
def test_a_damaged_description_is_not_started_from(begun: Bench, damaged: str) -> None:
    begun.run.store.put(begun.run.key(layout.folder(POINT) + damaged), b"{")
    answer = begun.resolve(2, staged=POINT)
    assert (answer.resume, answer.staged) == (checkpoint_id(1, 5), False)


def test_its_manifest_is_the_one_that_was_promised(begun: Bench) -> None:
    begun.resolve(2, staged=POINT)
    promised = read_described(begun.run, POINT)
    stored = begun.commit(step=10)

    def timeless(files: object) -> object:
        return [replace(item, modified=0) for item in files]  # type: ignore[attr-defined]

    assert timeless(stored.files) == timeless(promised.files)
    assert stored.metrics == promised.metrics
    check_fence(begun.run, POINT)
    answer = begun.resolve(3)
    assert (answer.resume, answer.staged) == (POINT, False)
    materialize(begun.run, POINT, cache_dir=begun.scratch / "cache")


def test_a_part_that_is_stored_needs_no_description(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.described(10, only=(1,))
    files = {0: contents(1, 10, 0)}
    any_bench.part(step=10, worker=0, workers=2, files=files)
    assert any_bench.resolve(2, staged=POINT).staged


def test_a_part_that_nobody_has_described_keeps_it_from_being_claimed(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=5)
    any_bench.described(10, only=(0,))
    answer = any_bench.resolve(2, staged=POINT)
    assert (answer.resume, answer.staged) == (checkpoint_id(1, 5), False)
    with pytest.raises(CheckpointDamaged, match=r"staged\.json: missing"):
        read_described(any_bench.run, POINT)


def test_a_claim_whose_holder_is_lost_is_left_for_the_next_number(begun: Bench) -> None:
    begun.resolve(2, staged=POINT)
    lost = begun.resolve(2)
    assert (lost.outcome, lost.highest_attempt) == ("Behind", 2)
    answer = begun.resolve(3)
    assert (answer.outcome, answer.resume) == ("Resolved", checkpoint_id(1, 5))
    assert not begun.run.bad(), "nothing is set aside for it"


def test_what_is_uploaded_after_that_is_fenced(begun: Bench) -> None:
    begun.resolve(2, staged=POINT)
    begun.resolve(3)
    begun.commit(step=10)
    with pytest.raises(CheckpointFenced, match="attempt 3"):
        check_fence(begun.run, POINT)
    assert begun.resolve(4, staged=POINT).resume == checkpoint_id(1, 5)


def test_a_run_that_has_lost_its_only_checkpoint_before_the_upload_starts_from_scratch(
    any_bench: Bench,
) -> None:
    any_bench.resolve(1)
    any_bench.described(10)
    any_bench.resolve(2, staged=POINT)
    answer = any_bench.resolve(3)
    assert (answer.outcome, answer.resume) == ("Resolved", None)


def test_one_that_was_set_aside_is_not_claimed(begun: Bench) -> None:
    begun.resolve(2, staged=POINT)
    set_aside(begun.run, POINT, "its files have changed")
    assert begun.resolve(2, staged=POINT).outcome == "Behind"
    answer = begun.resolve(3, staged=POINT)
    assert (answer.resume, answer.staged) == (checkpoint_id(1, 5), False)


def test_an_only_checkpoint_that_was_set_aside_before_its_upload_is_not_called_committed(
    any_bench: Bench,
) -> None:
    any_bench.resolve(1)
    any_bench.described(10)
    any_bench.resolve(2, staged=POINT)
    set_aside(any_bench.run, POINT, "its files have changed")
    answer = any_bench.resolve(3)
    assert answer.outcome == "NoGoodCheckpoint"
    assert answer.message.endswith(
        "has no good checkpoint left, and starting from scratch would lose saved progress; "
        "step-000000010-attempt-1: its files have changed. Restore the objects named here, if they "
        "were ever stored (and remove their records in bad/), or use another runName"
    )


def test_workers_that_saved_one_name_with_two_contents_describe_nothing(any_bench: Bench) -> None:
    any_bench.resolve(1)
    for worker in (0, 1):
        describe_part(
            any_bench.run,
            POINT,
            worker=worker,
            workers=2,
            files=any_bench.save(worker, {"model.pt": bytes([worker])}),
            metrics={},
            metadata={},
            unchanged=lambda: None,
            upload=Upload(),
        )
    answer = any_bench.resolve(2, staged=POINT)
    assert answer.resume is None
    assert "both saved 'model.pt' with different content" in answer.message


def test_a_trial_does_without_it(begun: Bench) -> None:
    answer = begun.resolve(2, staged=POINT, trial_of=POINT)
    assert (answer.resume, answer.trial_of, answer.staged) == (checkpoint_id(1, 5), POINT, False)


def test_retention_leaves_it_alone(begun: Bench) -> None:
    begun.resolve(2, staged=POINT)
    begun.commit(attempt=2, step=20)
    begun.commit(attempt=2, step=30)
    assert POINT not in retain(begun.run, attempt=2, keep=2)
    begun.commit(step=10)  # its parts still come
    check_fence(begun.run, POINT)


def test_retention_leaves_its_uploads_alone(begun: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    begun.resolve(2, staged=POINT)
    asked: list[Callable[[str], bool]] = []
    monkeypatch.setattr(
        type(begun.run.store), "abort_uploads", lambda _store, _prefix, *, of: asked.append(of)
    )
    retain(begun.run, attempt=2, keep=2)
    [is_left_over] = asked
    running, old = begun.run.key(layout.folder(POINT)), begun.run.key(layout.folder(OLD))
    assert (is_left_over(f"{running}x"), is_left_over(f"{old}x")) == (False, True)


@pytest.mark.parametrize(
    "change", ["a file is gone", "a link was added", "another content", "another, of the same time"]
)
def test_what_was_not_described_like_that_is_not_stored(any_bench: Bench, change: str) -> None:
    """Not even where all files had arrived before the restart."""
    any_bench.resolve(1)
    files = any_bench.save(0, {"model.pt": b"one", "optimizer.pt": b"two"})
    folder, brings = files[0].path.parent, {"worker": 0, "workers": 1, "metrics": {"loss": 1.0}}
    described = describe_part(
        any_bench.run,
        POINT,
        files=files,
        metadata={},
        unchanged=lambda: None,
        upload=Upload(),
        **brings,  # type: ignore[arg-type]
    )
    upload, optimizer = Upload(), folder / "optimizer.pt"
    write_part(any_bench.run, attempt=1, step=5, files=files, upload=upload, **brings)  # type: ignore[arg-type]
    upload = upload.restart(doubt=True)
    facts = optimizer.stat()
    if change == "a link was added":
        (folder / "last.pt").symlink_to("model.pt")
    elif change.startswith("another"):
        optimizer.write_bytes(b"too")
        if change.endswith("time"):
            os.utime(optimizer, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    else:
        optimizer.unlink()
    now = scan(folder, rank=0)
    with pytest.raises(CheckpointUnfinished, match="has changed on the disk of worker 0 since"):
        write_part(
            any_bench.run,
            attempt=1,
            step=10,
            files=now,
            described=described,
            upload=upload,
            **brings,  # type: ignore[arg-type]
        )
    assert not any_bench.run.folder(POINT).done


def test_a_file_that_is_doubted_stays_so_after_a_failed_call(
    bench: Bench, folder: Path, tmp_path: Path
) -> None:
    bench.resolve(1)
    files = bench.save(0, {"model.pt": b"one"})
    path, brings = files[0].path, {"worker": 0, "workers": 1, "metrics": {}}
    upload, facts = Upload(), path.stat()
    write_part(bench.run, attempt=1, step=5, files=files, upload=upload, **brings)  # type: ignore[arg-type]
    upload = upload.restart(doubt=True)
    path.write_bytes(b"two")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    away = folder.parent.rename(tmp_path / "away")
    with pytest.raises(StoreError):
        write_part(bench.run, attempt=1, step=10, files=files, upload=upload, **brings)  # type: ignore[arg-type]
    away.rename(folder.parent)
    write_part(bench.run, attempt=1, step=10, files=files, upload=upload, **brings)  # type: ignore[arg-type]
    stored = bench.run.key(layout.folder(POINT) + layout.file_name(0, "model.pt"))
    assert bench.run.store.get(stored) == b"two"


def test_a_trial_fences_nothing_before_what_it_has_saved_is_stored(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=5)
    any_bench.commit(step=10)
    assert any_bench.resolve(2, trial_of=POINT).trial_of == POINT
    own = any_bench.described(7, attempt=2)
    assert any_bench.resolve(3, staged=own).resume == own
    assert any_bench.resolve(4).resume == POINT, "its workers are lost"


def test_people_see_where_it_is(begun: Bench) -> None:
    begun.resolve(2, staged=POINT)
    found = {info.id: info for info in list_checkpoints(begun.run)}[POINT]
    assert (found.state, found.files) == ("incomplete", 0)
    assert found.reason == "no manifest; on their disks: workers 0, 1"


def test_a_description_is_written_once(begun: Bench) -> None:
    begun.described(10)
    with pytest.raises(CheckpointConflict, match="has described this step before"):
        describe_part(
            begun.run,
            POINT,
            worker=0,
            workers=2,
            files=begun.save(0, {"model.pt": b"other"}),
            metrics={},
            metadata={},
            unchanged=lambda: None,
            upload=Upload(),
        )


def test_large_files_are_summed_in_pieces(
    any_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainrun.checkpoint.description.PIECE", 1000)
    monkeypatch.setattr("trainrun.checkpoint.description.BUFFER", 300)
    any_bench.resolve(1)
    any_bench.described(10)
    promised = merge_descriptions(any_bench.run, POINT, workers=2)
    assert promised is not None
    stored = any_bench.commit(step=10)
    assert [item.crc32 for item in promised.files] == [item.crc32 for item in stored.files]


def test_files_that_were_summed_ahead_are_summed_again_where_they_changed(bench: Bench) -> None:
    bench.resolve(1)
    files, upload = bench.save(0, {"model.pt": b"one", "optimizer.pt": b"two"}), Upload()
    sum_ahead(files, upload)
    model, optimizer = (item.path for item in files)
    facts = model.stat()
    model.write_bytes(b"new")
    os.utime(model, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # as if nobody had written
    optimizer.write_bytes(b"NEW")
    marker = describe_part(
        bench.run,
        POINT,
        worker=0,
        workers=1,
        files=files,
        metrics={},
        metadata={},
        unchanged=lambda: None,
        upload=upload,
    )
    sums = {item.name: item.crc32 for item in marker.files}
    assert sums == {"model.pt": zlib.crc32(b"one"), "optimizer.pt": zlib.crc32(b"NEW")}


def test_a_description_that_was_given_up_is_not_written(any_bench: Bench) -> None:
    upload = Upload()
    upload.cancel()
    folder = any_bench.scratch / "saved"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(os.urandom(100))
    with pytest.raises(TransferCancelled):
        describe_part(
            any_bench.run,
            POINT,
            worker=0,
            workers=1,
            files=scan(folder, rank=0),
            metrics={},
            metadata={},
            unchanged=lambda: None,
            upload=upload,
        )
    assert any_bench.run.folder(POINT).described == frozenset()
