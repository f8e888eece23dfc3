"""Results of tasks on a real S3 server that loses and damages them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.levels import later_rare
from tests.support.s3_server import S3Server
from tests.support.task_logs import records_of
from tests.worlds.local.local_runs import LocalRuns
from trainrun.tasks.records import Rebuild

RIGHT = hashlib.sha256(b"".join(bytes([number]) * 100_000 for number in range(8))).hexdigest()


def spoil(objects: Path) -> None:
    """One is deleted, one truncated, one flipped in a bit, one replaced by another."""
    gone, cut, flipped, replaced, other, *_ = sorted(objects.glob("*/0"))
    content = other.read_bytes()
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-1])
    data = bytearray(flipped.read_bytes())
    data[50_000] ^= 1
    flipped.write_bytes(data)
    replaced.write_bytes(content)


def forget_copies(state: Path) -> None:
    """Of all workers."""
    for copy in state.glob("**/tasks/store/*"):
        copy.unlink()


@pytest.mark.parametrize(
    "copies",
    later_rare([False, True], by="tests/worlds/local/test_tasks_on_s3.py"),
    ids=["no-copies", "copies"],
)
def test_lost_and_damaged_results_are_found_or_made_again_after_the_server_was_away(
    runs: LocalRuns, own_s3: S3Server, *, copies: bool
) -> None:
    runs.script = "large_parts.py"
    runs.spec = {"storage": {"uri": "s3://bucket/runs", "endpointURL": own_s3.endpoint}}
    credentials = own_s3.environment()
    del credentials["AWS_ENDPOINT_URL"]
    state = runs.folder / "state"
    driver = runs.start(env={**credentials, "XDG_STATE_HOME": str(state)})
    eventually((runs.journal / "made").exists, timeout=60, what="all parts")
    own_s3.stop()
    folder = own_s3.data / "bucket/runs/tiny"
    spoil(folder / "tasks/objects")
    if not copies:
        forget_copies(state)
    (runs.journal / "go").touch()
    driver.wait_for_event("StorageUnavailable")
    own_s3.start()
    ended = driver.end()
    assert ended.code == 0, ended.out[-3000:] + ended.err[-3000:]
    assert (runs.journal / "result").read_text() == RIGHT
    assert ended.incidents == []
    tries = sum(len(it.read_text()) for it in runs.journal.glob("part-*"))
    assert tries == (8 if copies else 12)
    rebuilt = [it for it in records_of(folder) if isinstance(it, Rebuild)]
    assert len(rebuilt) == (0 if copies else 4)
