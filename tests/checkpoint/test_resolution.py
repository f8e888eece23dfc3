"""What an attempt is started from."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checkpoints import Bench, Through, checkpoint_id
from trainrun.checkpoint.ownership import release
from trainrun.checkpoint.records import AttemptRecord, FinishedRecord, add_checksum
from trainrun.checkpoint.resolution import prove, resolve
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.writer import check_fence, finish, set_aside
from trainrun.contract.answer import ResolveRequest
from trainrun.errors import CheckpointFenced, StoreMisconfigured

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.s3_server import S3Server
    from trainrun.contract.agent_state import Resolution
    from trainrun.contract.checkpoint_id import CheckpointId


def test_a_new_run_starts_from_nothing(any_bench: Bench) -> None:
    answer = any_bench.resolve(1)
    assert (answer.outcome, answer.resume, answer.highest_attempt) == ("Resolved", None, 1)
    assert answer.message == "start from scratch"


def test_an_attempt_after_others_that_never_came_to_a_claim_starts_from_nothing(
    tmp_path: Path,
) -> None:
    store = open_store(f"file://{tmp_path}/not/there/yet")
    bench = Bench(run=RunStore(store, "digits"), scratch=tmp_path)
    answer = bench.resolve(3, ended="StartFailed: no such image")
    assert (answer.outcome, answer.resume, answer.highest_attempt) == ("Resolved", None, 3)


def test_the_next_attempt_resumes_from_the_newest_commit(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    any_bench.commit(step=20)
    answer = any_bench.resolve(2, ended="AppError: rank 1 exited with code 1")
    assert answer.outcome == "Resolved"
    assert answer.resume == checkpoint_id(1, 20)
    assert answer.message == "resume from step-000000020-attempt-1"
    record = any_bench.run.read(AttemptRecord, "attempts/000002.json")
    assert record == AttemptRecord(
        attempt=2,
        uid="uid-1",
        resume=checkpoint_id(1, 20),
        ended="AppError: rank 1 exited with code 1",
    )


def test_a_later_attempt_wins_over_a_higher_step(bench: Bench) -> None:
    bench.resolve(1)
    bench.commit(step=10)
    bench.resolve(2)
    bench.commit(attempt=1, step=90)  # by an agent that could not be reached
    bench.commit(attempt=2, step=15)
    assert bench.resolve(3).resume == checkpoint_id(2, 15)


@pytest.mark.case("storage", "A worker that counts as lost comes back and commits")
def test_a_late_commit_of_an_unreachable_agent_is_fenced(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    any_bench.resolve(2)
    any_bench.commit(attempt=1, step=90)
    assert any_bench.resolve(3).resume == checkpoint_id(1, 10)


def test_nothing_but_fenced_commits_is_nothing(bench: Bench) -> None:
    bench.resolve(1)
    bench.resolve(2)
    bench.commit(attempt=1, step=10)
    answer = bench.resolve(3)
    assert (answer.outcome, answer.resume) == ("Resolved", None)


def test_resolving_an_attempt_again_gives_the_same_answer(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    first = any_bench.resolve(2)
    any_bench.commit(attempt=1, step=20)
    assert any_bench.resolve(2) == first


def test_a_claimed_resume_point_that_has_been_set_aside_is_not_handed_out_again(
    bench: Bench,
) -> None:
    bench.resolve(1)
    bench.commit(step=10)
    bench.commit(step=20)
    bench.resolve(2)
    set_aside(bench.run, checkpoint_id(1, 20), "worker-00000/model.pt: CRC32 differs")
    answer = bench.resolve(2)
    assert (answer.outcome, answer.highest_attempt) == ("Behind", 2)
    answer = bench.resolve(3)
    assert answer.resume == checkpoint_id(1, 10)
    assert answer.set_aside == ("step-000000020-attempt-1: worker-00000/model.pt: CRC32 differs",)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "damaged"])
def test_a_claimed_resume_point_that_is_lost_is_not_handed_out_again(
    bench: Bench, folder: Path, gone: bool
) -> None:
    bench.resolve(1)
    bench.commit(step=10)
    lost = folder / "checkpoints" / bench.commit(step=20).id.name
    bench.resolve(2)
    shutil.rmtree(lost if gone else lost / "worker-00001")
    assert bench.resolve(2).outcome == "Behind"


def test_resolving_an_attempt_again_tells_again_what_was_set_aside_and_writes_nothing(
    bench: Bench,
) -> None:
    bench.resolve(1)
    bench.commit(step=10)
    bench.commit(step=20)
    set_aside(bench.run, checkpoint_id(1, 20), "it poisons the training")
    first = bench.resolve(2)
    assert first.set_aside == ("step-000000020-attempt-1: it poisons the training",)
    assert resolve_while(bench, 2, lambda: pytest.fail("it claims the number again")) == first


def test_a_number_that_somebody_has_claimed_is_behind(bench: Bench) -> None:
    bench.resolve(1)
    bench.resolve(2)
    bench.resolve(3)
    answer = bench.resolve(2)
    assert (answer.outcome, answer.highest_attempt) == ("Behind", 3)
    assert answer.message.endswith("/digits already has attempt 3")


def test_another_run_of_the_same_yaml_continues_with_higher_attempts(bench: Bench) -> None:
    bench.resolve(1)
    bench.commit(step=10)
    release(bench.run, uid="uid-1")
    answer = bench.resolve(1, uid="uid-2")
    assert (answer.outcome, answer.highest_attempt) == ("Behind", 1)
    assert bench.resolve(2, uid="uid-2").resume == checkpoint_id(1, 10)


def test_an_attempt_number_of_another_run_is_not_ours(bench: Bench) -> None:
    bench.resolve(1)
    release(bench.run, uid="uid-1")
    bench.resolve(2, uid="uid-2")
    release(bench.run, uid="uid-2")
    answer = bench.resolve(2)
    assert (answer.outcome, answer.highest_attempt) == ("Behind", 2)


@pytest.mark.case("storage", "Slot 0's agent dies before it writes the manifest")
def test_done_markers_newer_than_the_newest_manifest_are_completed(any_bench: Bench) -> None:
    bench = any_bench
    bench.resolve(1)
    bench.commit(step=10)
    for worker in range(2):  # slot 0's agent died before it saw the last marker
        bench.part(step=20, worker=worker, workers=2, files={worker: {f"m{worker}": b"x"}})
    assert bench.resolve(2).resume == checkpoint_id(1, 20)
    assert bench.run.folder(checkpoint_id(1, 20)).has_manifest


def test_an_incomplete_checkpoint_is_never_chosen(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    any_bench.part(step=20, worker=0, workers=2, files={0: {"m0": b"x"}})
    answer = any_bench.resolve(2)
    assert answer.resume == checkpoint_id(1, 10)
    assert answer.message == "resume from step-000000010-attempt-1"


def test_done_markers_below_a_manifest_are_not_completed(bench: Bench) -> None:
    bench.resolve(1)
    for worker in range(2):
        bench.part(step=10, worker=worker, workers=2, files={worker: {f"m{worker}": b"x"}})
    bench.commit(step=20)
    set_aside(bench.run, checkpoint_id(1, 20), "x")
    answer = bench.resolve(2)
    assert answer.outcome == "NoGoodCheckpoint"
    assert answer.set_aside == ("step-000000020-attempt-1: x",)
    assert not bench.run.folder(checkpoint_id(1, 10)).has_manifest


def test_conflicting_parts_fall_back_to_the_checkpoint_before(bench: Bench) -> None:
    bench.resolve(1)
    bench.commit(step=10)
    for worker in range(2):
        files = {worker: {"same-name": f"{worker}".encode()}}
        bench.part(step=20, worker=worker, workers=2, files=files)
    answer = bench.resolve(2)
    assert answer.resume == checkpoint_id(1, 10)
    assert answer.message.startswith(
        "resume from step-000000010-attempt-1 (newer, but never completed: "
        "step-000000020-attempt-1: checkpoint of step 20: rank 0 and rank 1 both "
        "saved 'same-name' with different content"
    )


@pytest.mark.parametrize("uid", ["uid-1", "uid-2"])
def test_a_finished_run_says_so(any_bench: Bench, uid: str) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    finish(any_bench.run, uid="uid-1")
    finish(any_bench.run, uid="uid-1")
    answer = any_bench.resolve(2, uid=uid)
    assert (answer.outcome, answer.highest_attempt) == ("Finished", 0)
    assert answer.message.endswith(
        "/digits has already finished: nothing is left to do. To train again, set "
        "storage.onExisting: StartFresh, or use another storage.runName"
    )


@pytest.mark.case(
    "sweeps", "A trial finds the folder of a trial with other parameters", counted="maxFailedTrials"
)
@pytest.mark.parametrize("over", [True, False])
def test_the_folder_of_a_trial_with_other_parameters_is_not_gone_on_with(
    any_bench: Bench, *, over: bool
) -> None:
    """The trial was told to have succeeded, or resumed, with what the other parameters gave."""
    first = any_bench.resolve(1, params='{"lr": 0.1, "width": 3}')
    assert first.outcome == "Resolved"
    any_bench.commit(step=10)
    release(any_bench.run, uid="uid-1")
    if over:
        finish(any_bench.run, uid="uid-1")
    other = any_bench.resolve(2, uid="uid-2", params='{"lr": 0.2, "width": 3}')
    assert other.outcome == "NotEmpty"
    assert other.message.endswith(
        '/digits holds a trial with the parameters {"lr": 0.1, "width": 3}, but this trial '
        'has {"lr": 0.2, "width": 3}: they come from another log of the sweep. Restore that log, '
        "or set resume.restartErrored and add 1 to resume.token to begin this trial in a new folder"
    )
    same = any_bench.resolve(2, uid="uid-2", params='{"width": 3, "lr": 0.1}')
    plain = any_bench.resolve(2, uid="uid-2")
    expected = ("Finished", None) if over else ("Resolved", checkpoint_id(1, 10))
    assert (same.outcome, same.resume) == (plain.outcome, plain.resume) == expected


class ErrorPages(Through):
    """A store behind a proxy that answers reads of one object with a page of its own, and 200."""

    def __init__(self, bench: Bench, page: bytes) -> None:
        super().__init__(bench)
        self._page = page

    def get(self, key: str) -> bytes:
        return self._page if key.endswith("finished.json") else self._store.get(key)


@pytest.mark.case("storage", "A proxy answers in the store's place")
@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (b"<html>502 Bad Gateway</html>", "finished.json: cannot be read"),
        (b"", "finished.json: empty"),
        (add_checksum(FinishedRecord(uid="uid-9")), "the listing does not show it"),
    ],
    ids=["an error page", "nothing", "another run's"],
)
def test_one_foreign_answer_does_not_end_a_run_as_succeeded(
    any_bench: Bench, page: bytes, reason: str
) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    run = RunStore(ErrorPages(any_bench, page), "digits")  # type: ignore[arg-type]
    answer = resolve(run, ResolveRequest(attempt=2), uid="uid-1", watch=any_bench.watch)
    assert answer.outcome == "Unavailable"
    assert "/digits/finished.json cannot be trusted: " in answer.message
    assert reason in answer.message
    assert "delete it to continue the run, or use another runName" in answer.message
    assert any_bench.resolve(2).resume == checkpoint_id(1, 10)


def test_a_record_of_success_that_has_rotted_is_not_believed_and_named(bench: Bench) -> None:
    bench.resolve(1)
    finish(bench.run, uid="uid-1")
    bench.run.store.put("digits/finished.json", b"{}")
    answer = bench.resolve(2)
    assert answer.outcome == "Unavailable"
    assert "finished.json: not a TrainRun record" in answer.message


@pytest.mark.case("storage", "Another run takes the storage over", counted="the run fails")
def test_a_run_whose_storage_was_taken_over_does_not_mark_it_finished(any_bench: Bench) -> None:
    any_bench.resolve(1)
    release(any_bench.run, uid="uid-1")
    any_bench.resolve(2, uid="uid-2")
    with pytest.raises(StoreMisconfigured, match="now belongs to TrainRun uid uid-2"):
        finish(any_bench.run, uid="uid-1")
    assert any_bench.resolve(3, uid="uid-2").outcome == "Resolved"
    finish(any_bench.run, uid="uid-2")
    assert any_bench.resolve(4, uid="uid-2").outcome == "Finished"


def test_what_is_committed_after_a_takeover_is_known_to_be_fenced(any_bench: Bench) -> None:
    any_bench.resolve(1)
    check_fence(any_bench.run, any_bench.commit(step=10).id)
    release(any_bench.run, uid="uid-1")
    any_bench.resolve(2, uid="uid-2")
    check_fence(any_bench.run, checkpoint_id(1, 10))
    late = any_bench.commit(step=20).id
    with pytest.raises(CheckpointFenced) as caught:
        check_fence(any_bench.run, late)
    assert str(caught.value) == (
        f"step-000000020-attempt-1 is never used: attempt 2 in {any_bench.run.uri} started "
        "from an older one, because another TrainRun took over this storage. Give each TrainRun "
        "its own storage.runName"
    )


class Before(Through):
    """A store in which something else happens just before an object is written, once."""

    def __init__(self, bench: Bench, key: str, happens: Callable[[], object]) -> None:
        super().__init__(bench)
        self._key, self._happens = key, [happens]

    def put_if_absent(self, key: str, data: bytes) -> bool:
        while key.endswith(self._key) and self._happens:
            self._happens.pop()()
        return self._store.put_if_absent(key, data)


def resolve_while(
    bench: Bench, attempt: int, happens: Callable[[], object], *, before: str = "", ended: str = ""
) -> Resolution:
    """Ask for an attempt while something else happens, just before its claim is written."""
    store: Any = Before(bench, before or f"attempts/{attempt:06}.json", happens)
    run = replace(bench.run, store=store)
    return resolve(
        run, ResolveRequest(attempt=attempt, ended=ended), uid="uid-1", watch=bench.watch
    )


@pytest.mark.case("storage", "A checkpoint is committed while the resume point is being chosen")
@pytest.mark.parametrize("first", [10, None], ids=["there was one", "there was none"])
def test_what_is_committed_between_the_look_and_the_claim_is_resumed_from(
    any_bench: Bench, first: int | None
) -> None:
    """The claim fences it, though it was reported to be committed."""
    any_bench.resolve(1)
    if first is not None:
        any_bench.commit(step=first)
    why = "AppError: rank 1 exited with code 1"
    answer = resolve_while(any_bench, 2, lambda: any_bench.commit(step=20), ended=why)
    assert (answer.outcome, answer.highest_attempt) == ("Behind", 3)
    assert answer.message.endswith("/digits already has attempt 3")
    assert any_bench.run.read(AttemptRecord, "attempts/000003.json") == AttemptRecord(
        attempt=3, uid="uid-1", resume=checkpoint_id(1, 20), ended=why
    )
    for attempt in (4, 5):
        assert any_bench.resolve(attempt).resume == checkpoint_id(1, 20)
    any_bench.commit(step=30)  # by an agent that could not be reached
    assert any_bench.resolve(6).resume == checkpoint_id(1, 20)


def test_what_is_committed_meanwhile_and_older_than_the_choice_changes_nothing(
    any_bench: Bench,
) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    answer = resolve_while(any_bench, 2, lambda: any_bench.commit(step=5))
    assert (answer.outcome, answer.resume) == ("Resolved", checkpoint_id(1, 10))


@pytest.mark.parametrize("first", [checkpoint_id(1, 10), None], ids=["one before", "none before"])
def test_what_is_committed_meanwhile_and_damaged_changes_nothing(
    bench: Bench, folder: Path, first: CheckpointId | None
) -> None:
    def commit_damaged() -> None:
        name = bench.commit(step=20).id.name
        (folder / "checkpoints" / name / "worker-00001" / "model-rank1.pt").unlink()

    bench.resolve(1)
    if first is not None:
        bench.commit(step=10)
    answer = resolve_while(bench, 2, commit_damaged)
    assert (answer.outcome, answer.resume) == ("Resolved", first)
    assert bench.run.attempts() == [1, 2]


def test_what_is_stored_meanwhile_and_not_committed_changes_nothing(bench: Bench) -> None:
    bench.resolve(1)
    bench.commit(step=10)
    answer = resolve_while(bench, 2, lambda: bench.part(step=20, files={0: {"m0": b"x"}}))
    assert (answer.outcome, answer.resume) == ("Resolved", checkpoint_id(1, 10))
    assert not bench.run.folder(checkpoint_id(1, 20)).has_manifest


def test_a_number_that_somebody_claims_meanwhile_is_behind(any_bench: Bench) -> None:
    any_bench.resolve(1)
    claim = AttemptRecord(attempt=2, uid="uid-2", resume=None, ended="")
    answer = resolve_while(
        any_bench, 2, lambda: any_bench.run.write_once("attempts/000002.json", claim)
    )
    assert (answer.outcome, answer.highest_attempt) == ("Behind", 2)


def test_a_run_that_finishes_while_it_is_taken_over_is_finished(any_bench: Bench) -> None:
    any_bench.resolve(1)
    release(any_bench.run, uid="uid-1")

    def finish_it() -> None:
        any_bench.run.store.put("digits/finished.json", add_checksum(FinishedRecord(uid="uid-1")))

    answer = resolve_while(any_bench, 2, finish_it, before="owners/000002.json")
    assert answer.outcome == "Finished"


def test_fail_on_existing_refuses_what_another_run_left(any_bench: Bench) -> None:
    any_bench.resolve(1)
    release(any_bench.run, uid="uid-1")
    answer = any_bench.resolve(1, uid="uid-2", on_existing="Fail")
    assert answer.outcome == "NotEmpty"
    assert answer.message.endswith(
        "already holds a run and onExisting is Fail; use another runName, onExisting: Resume to "
        "continue that run, or StartFresh to begin a new generation"
    )


def test_fail_on_existing_refuses_a_finished_run(bench: Bench) -> None:
    bench.resolve(1)
    finish(bench.run, uid="uid-1")
    assert bench.resolve(1, uid="uid-2", on_existing="Fail").outcome == "NotEmpty"


def test_fail_on_existing_lets_a_run_continue_its_own(bench: Bench) -> None:
    assert bench.resolve(1, on_existing="Fail").outcome == "Resolved"
    bench.commit(step=10)
    assert bench.resolve(2, on_existing="Fail").resume == checkpoint_id(1, 10)
    release(bench.run, uid="uid-1")
    assert bench.resolve(3, on_existing="Fail").resume == checkpoint_id(1, 10)


def test_the_choice_does_not_change_when_retention_has_run(any_bench: Bench) -> None:
    any_bench.resolve(1)
    for step in range(10, 70, 10):
        any_bench.commit(step=step)
    deleted = retain(any_bench.run, attempt=1, keep=3)
    assert deleted == tuple(checkpoint_id(1, step) for step in (10, 20, 30))
    assert any_bench.resolve(2).resume == checkpoint_id(1, 60)
    assert retain(any_bench.run, attempt=1, keep=2) == ()  # no longer the newest attempt
    assert set(any_bench.run.folders()) == {checkpoint_id(1, step) for step in (40, 50, 60)}


# ------------------------------------------------------------------ whether a worker can read it


def test_a_worker_shows_that_it_can_read_the_checkpoint_and_writes_nothing(
    any_bench: Bench,
) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    before = any_bench.run.objects("")
    point = checkpoint_id(1, 10)
    answer = prove(any_bench.run, ResolveRequest(attempt=2, proof=True, committed=point))
    assert (answer.attempt, answer.outcome, answer.resume) == (2, "Resolved", point)
    assert (
        prove(any_bench.run, ResolveRequest(attempt=2, proof=True, committed=None)).outcome
        == "Resolved"
    )
    assert any_bench.run.objects("") == before


def test_a_checkpoint_that_is_gone_does_not_mean_that_the_store_refuses(any_bench: Bench) -> None:
    any_bench.resolve(1)
    assert (
        prove(
            any_bench.run, ResolveRequest(attempt=2, proof=True, committed=checkpoint_id(1, 10))
        ).outcome
        == "Resolved"
    )


@pytest.mark.case("storage", "The store refuses a run that has trained before")
@pytest.mark.parametrize("known", [True, False])
def test_a_worker_that_does_not_reach_the_store_says_so(
    bench: Bench, folder: Path, *, known: bool
) -> None:
    folder.parent.rmdir()
    point = checkpoint_id(1, 10) if known else None
    answer = prove(bench.run, ResolveRequest(attempt=2, proof=True, committed=point))
    assert (answer.attempt, answer.outcome, answer.resume) == (2, "Unavailable", None)
    assert answer.message.endswith("does not exist; is the volume mounted?")


@pytest.mark.parametrize("known", [True, False])
def test_a_worker_with_wrong_keys_says_what_the_server_says(
    own_s3: S3Server, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    for name, value in {**own_s3.environment(), "AWS_SECRET_ACCESS_KEY": "wrong"}.items():
        monkeypatch.setenv(name, value)
    with contextlib.closing(open_store("s3://bucket/runs")) as store:
        run = RunStore(store, "digits")
        point = checkpoint_id(1, 10) if known else None
        answer = prove(run, ResolveRequest(attempt=2, proof=True, committed=point))
        assert (answer.outcome, answer.resume) == ("Misconfigured", None)
        assert "SignatureDoesNotMatch" in answer.message
        own_s3.stop()
        assert (
            prove(run, ResolveRequest(attempt=2, proof=True, committed=point)).outcome
            == "Unavailable"
        )
