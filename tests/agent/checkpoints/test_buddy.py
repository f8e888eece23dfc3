"""Staged files on two nodes: a buddy copies them, and stores them if their worker is lost."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from testbed.tcp_proxy import tcp_proxy
from tests.agent.checkpoints.test_checkpoints import PRELUDE, folder, prepare_storage
from tests.agent.checkpoints.test_upload_every import KEEPS, in_store
from tests.agent.workers import Workers, start
from tests.support.certificates import TestAuthority
from tests.support.eventually import eventually
from tests.support.mounts import mounted
from tests.support.operator_stand_in import OperatorStandIn
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract.agent_state import AgentState
from trainrun.contract.answer import Answer, Hold, OpenStep, PartHolder, PeerSource
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.agent.workers import Worker

COPIES = replace(KEEPS, buddy=True)
POINT = CheckpointId(attempt=1, step=2)
NAME = "uid.workers.trainrun"

SAVE = (
    PRELUDE
    + """
def save_tree(step):
    directory = trainrun.staging_directory()
    (directory / "sub folder").mkdir()
    path = directory / "sub folder" / f"rank {RANK}.bin"
    path.write_bytes(bytes([RANK]) * 3_000_000)
    path.chmod(0o640)
    (directory / f"link-{RANK}").symlink_to(f"sub folder/rank {RANK}.bin")
    (directory / f"empty-{RANK}").touch()
    trainrun.report({"step": step}, step=step, checkpoint=directory, metadata={"of": RANK})
save_tree(2)
wait_for("again")
save_tree(3)
wait_for("third")
save_tree(4)
time.sleep(600)
"""
)


@pytest.fixture
def authority() -> TestAuthority:
    return TestAuthority()


@pytest.fixture
def operator(tmp_path: Path, authority: TestAuthority) -> Iterator[OperatorStandIn]:
    with OperatorStandIn(tls=authority.server(tmp_path)) as stand_in:
        yield stand_in


class Pair:
    """Two workers, each the buddy of the other; the first attempt runs, and step 2 is saved."""

    def __init__(
        self, operator: OperatorStandIn, workers: Workers, authority: TestAuthority
    ) -> None:
        prepare_storage(workers)
        self.operator, self.workers = operator, workers
        self.certificate = authority.node_certificate(NAME)
        own = {"settings": COPIES, "ca": authority.pem}
        self.gang = [workers.start(SAVE, slot=slot, **own) for slot in (0, 1)]
        operator.order(start(workers=2), settings=COPIES, certificate=self.certificate)
        for slot in (0, 1):
            self.until(slot, lambda s: s.serves_tls and s.staged and s.staged[-1].complete)

    def until(self, slot: int, condition: object) -> AgentState:
        return self.operator.until(condition, worker=f"run-{slot}-1")  # type: ignore[arg-type]

    def copy(self, step: int, *, kept: int = -1, **more: object) -> None:
        """Both are told to copy a step of each other, and to keep another one."""
        for slot, other in ((0, 1), (1, 0)):
            state = self.until(other, lambda s: s.serves_tls)
            source = PeerSource(address=state.serves_tls, secret=state.agent)
            source = replace(source, **more)  # type: ignore[arg-type]
            order = replace(start(workers=2), partners=(PartHolder(slot=other, source=source),))
            self.operator.order(
                order,
                worker=f"run-{slot}-1",
                settings=COPIES,
                certificate=self.certificate,
                copy=step,
                copied=kept,
            )

    def lose(self, slot: int) -> Worker:
        """The node of a worker is gone, with its disk; returns the other worker."""
        self.gang[slot].kill()
        shutil.rmtree(self.workers.folder / f"node-{slot}")
        return self.gang[1 - slot]

    def hold(
        self, slot: int, *, stand_in: tuple[int, ...], stored: tuple[int, ...], attempt: int = 2
    ) -> None:
        """The attempt before has ended; the parts of slots `stored` are in the store."""
        order = Hold(
            attempt=attempt, flush=(2,), stand_in=stand_in, flush_seconds=60, flush_allowed=60
        )
        self.operator.order(
            order,
            worker=f"run-{slot}-1",
            settings=COPIES,
            steps=(OpenStep(step=2, slots=stored),),
        )


@pytest.fixture
def pair(operator: OperatorStandIn, workers: Workers, authority: TestAuthority) -> Pair:
    return Pair(operator, workers, authority)


def copied(step: int) -> object:
    return lambda s: [(c.step, c.complete) for c in s.copies][-1:] == [(step, True)]


def test_the_part_of_a_lost_worker_is_stored_by_its_buddy(pair: Pair) -> None:
    pair.copy(2)
    state = pair.until(0, copied(2))
    [copy] = state.copies
    assert (copy.slot, copy.ranks, copy.uploaded) == (1, (1,), False)
    pair.lose(1)
    assert in_store(pair.workers) == []
    pair.hold(0, stand_in=(1,), stored=(0,))
    state = pair.until(0, lambda s: s.copies and s.copies[0].uploaded)
    assert state.held.stand_in == (1,)
    pair.hold(0, stand_in=(1,), stored=(0, 1))
    state = pair.until(0, lambda s: s.committed and s.phase == "Idle")
    assert state.committed is not None
    assert state.committed.id == POINT
    run = RunStore(open_store(f"file://{pair.workers.storage}"), "run")
    marker = json.loads((folder(pair.workers, 2) / "worker-00001.done.json").read_text())
    assert (marker["worker"], marker["metadata"]) == (1, {"of": 1})
    manifest = run.manifest(POINT)
    files = {f.name: (f.worker, f.size, oct(f.mode), f.ranks) for f in manifest.files}
    assert files["sub folder/rank 1.bin"] == (1, 3_000_000, "0o640", (1,))
    assert [(o.name, o.target) for o in manifest.others if o.target] == [
        ("link-0", "sub folder/rank 0.bin"),
        ("link-1", "sub folder/rank 1.bin"),
    ]
    stored = folder(pair.workers, 2) / "worker-00001/sub folder/rank 1.bin"
    assert stored.read_bytes() == bytes([1]) * 3_000_000


def test_a_buddy_keeps_the_copy_that_all_have_until_all_have_the_next(pair: Pair) -> None:
    pair.copy(2)
    pair.until(0, copied(2))
    (pair.workers.folder / "again").touch()
    pair.until(1, lambda s: len(s.staged) == 2 and s.staged[1].complete)
    pair.copy(3, kept=2)
    state = pair.until(0, copied(3))
    assert [c.step for c in state.copies] == [2, 3]
    (pair.workers.folder / "third").touch()
    pair.until(1, lambda s: len(s.staged) == 3 and s.staged[2].complete)
    pair.copy(4, kept=3)
    state = pair.until(0, copied(4))
    assert [c.step for c in state.copies] == [3, 4]
    copies = pair.workers.folder / "node-0" / "copies"
    eventually(lambda: len([*copies.iterdir()]) == 2, what="two copies on the disk")
    pair.operator.order(
        start(workers=2),
        worker="run-0-1",
        settings=COPIES,
        committed=CheckpointId(attempt=1, step=4),
    )
    pair.until(0, lambda s: not s.copies)
    eventually(lambda: not [*copies.iterdir()], what="an empty folder")


def test_a_copy_of_an_older_attempt_is_never_stored_for_the_same_step_of_a_newer_one(
    pair: Pair,
) -> None:
    pair.copy(2)
    pair.until(0, copied(2))
    pair.operator.order(start(attempt=2, workers=2), settings=COPIES, certificate=pair.certificate)
    for slot in (0, 1):
        pair.until(slot, lambda s: s.attempt == 2 and s.staged and s.staged[-1].complete)
    pair.until(0, lambda s: not s.copies)
    pair.lose(1)
    pair.hold(0, attempt=3, stand_in=(1,), stored=(0,))
    state = pair.until(0, lambda s: s.held.stand_in and s.phase == "Idle")
    assert [part.uploaded for part in state.staged] == [True]
    [stored] = (pair.workers.storage / "run" / "checkpoints").iterdir()
    assert stored.name.endswith("-attempt-2")
    assert not (stored / "worker-00001.done.json").exists()


def test_a_buddy_waits_for_a_store_that_is_away_and_says_so(pair: Pair) -> None:
    pair.copy(2)
    pair.until(0, copied(2))
    pair.lose(1)
    away = pair.workers.storage.rename(pair.workers.folder / "away")
    pair.hold(0, stand_in=(1,), stored=(0,))
    state = pair.until(0, lambda s: [p.type for p in s.problems] == ["StorageUnavailable"] * 2)
    assert (state.phase, [copy.uploaded for copy in state.copies]) == ("Flushing", [False])
    away.rename(pair.workers.storage)
    state = pair.until(0, lambda s: s.copies and s.copies[0].uploaded and not s.problems)
    assert (folder(pair.workers, 2) / "worker-00001.done.json").exists()


def test_a_copy_that_changes_on_the_disk_is_not_used(pair: Pair) -> None:
    pair.copy(2)
    pair.until(0, copied(2))
    pair.lose(1)
    [path] = (pair.workers.folder / "node-0" / "copies").rglob("rank 1.bin")
    path.write_bytes(b"x" * 3_000_000)
    pair.hold(0, stand_in=(1,), stored=(0,))
    pair.until(0, lambda s: not s.copies and s.phase == "Idle")
    pair.gang[0].shows("the copy of worker 1 is not used: sub folder/rank 1.bin of step 2")
    assert not (folder(pair.workers, 2) / "worker-00001.done.json").exists()


def test_a_buddy_that_cannot_copy_says_so_and_nothing_waits(pair: Pair) -> None:
    pair.copy(2, secret="guessed")
    state = pair.until(0, lambda s: s.problems)
    [problem] = state.problems
    assert (problem.type, problem.reason) == ("NoBuddy", "NotCopied")
    assert problem.message == (
        "worker run-0-1 has no copy of what worker 1 has staged: 401: the token is not that of "
        "this agent. It tries again"
    )
    assert not [c for c in state.copies if c.complete]
    pair.copy(2)
    state = pair.until(0, copied(2))
    pair.until(0, lambda s: not s.problems)


def test_a_connection_that_was_cut_once_made_everybody_drop_the_copies_of_the_step_before(
    pair: Pair,
) -> None:
    """Nobody waits for a buddy that cannot copy, and it said so at once."""
    host, port = pair.until(1, lambda s: s.serves_tls).serves_tls.split(":")
    with tcp_proxy(int(port), upstream_host=host) as proxy:
        proxy.cut_answers_after = 1_000_000
        pair.copy(2, address=f"{proxy.host}:{proxy.port}")
        pair.until(0, copied(2))
        assert proxy.cut_answers_after is None, "it was cut"
    assert "has no copy of" not in pair.gang[0].output


def test_a_disk_without_room_for_a_copy_is_told_and_stays_free(
    operator: OperatorStandIn, workers: Workers, authority: TestAuthority
) -> None:
    directory = workers.folder / "node-0"
    with mounted(directory, "size=8m"):
        pair = Pair(operator, workers, authority)
        pair.copy(2)
        state = pair.until(0, lambda s: s.problems)
        assert (state.problems[0].type, state.problems[0].reason) == ("NoBuddy", "NoRoom")
        assert state.problems[0].message == (
            "worker run-0-1 has no copy of what worker 1 has staged: its disk is full. Give its "
            "disk room for three checkpoints more"
        )
        assert not [*(directory / "copies").rglob("*.bin")]
        pair.until(1, copied(2))
        workers.close()


def test_an_agent_with_a_certificate_for_another_name_is_not_believed(
    pair: Pair, authority: TestAuthority
) -> None:
    pair.certificate = replace(authority.node_certificate(NAME), name="other.workers.trainrun")
    pair.copy(2)
    state = pair.until(0, lambda s: s.problems)
    assert "Hostname mismatch" in state.problems[0].message
    assert state.problems[0].message.endswith(". It tries again")


def test_the_private_key_is_in_no_digest_and_no_log() -> None:
    certificate = TestAuthority().node_certificate(NAME)
    answer = Answer(order=start())
    assert replace(answer, certificate=certificate).digest == answer.digest
    assert certificate.key.splitlines()[1] not in repr(replace(answer, certificate=certificate))
