"""An attempt that starts from the workers' disks: what agents do before, during and after."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.agent.checkpoints.test_checkpoints import PRELUDE, folder, prepare_storage
from tests.agent.checkpoints.test_upload_every import KEEPS, in_store
from tests.agent.workers import start
from tests.support.eventually import eventually
from trainrun.checkpoint.description import merge_descriptions
from trainrun.checkpoint.records import Beat
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract import layout
from trainrun.contract.answer import Hold, PartHolder, PeerSource, ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from pathlib import Path

    from tests.agent.workers import Worker, Workers
    from tests.support.operator_stand_in import OperatorStandIn

POINT = CheckpointId(attempt=1, step=2)
CLAIM = ResolveRequest(attempt=2, staged=POINT, workers=1)
SAVE_OR_READ = (
    PRELUDE
    + """
resume = trainrun.get_checkpoint()
if resume is None:
    save(1, f"rank{RANK}.bin", b"one")
    save(2, f"rank{RANK}.bin", b"two")
else:
    with resume.as_directory() as directory:
        found = {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir())}
        print("read", resume.step, found, flush=True)
time.sleep(600)
"""
)


def run_store(workers: Workers) -> RunStore:
    return RunStore(open_store(f"file://{workers.storage}"), "run")


def crash(operator: OperatorStandIn, *names: str) -> None:
    """Every worker has staged both steps; an attempt ends, and they describe the newer one."""
    for name in names:
        operator.until(lambda s: len(s.staged) == 2 and s.staged[1].complete, worker=name)
    order = Hold(attempt=2, flush=(2,), in_place=True, flush_seconds=60.0, flush_allowed=60.0)
    operator.order(order, settings=KEEPS)
    for name in names:
        operator.until(
            lambda s: s.phase == "Idle" and s.holds == (POINT,) and s.held.in_place, worker=name
        )


def go_on(operator: OperatorStandIn, *, workers: int = 1, **more: object) -> None:
    order = replace(start(2, workers=workers, resume=POINT), staged=True)
    operator.order(replace(order, **more), settings=KEEPS)


def one_worker(operator: OperatorStandIn, workers: Workers) -> Worker:
    prepare_storage(workers)
    worker = workers.start(SAVE_OR_READ, settings=KEEPS)
    operator.order(start(), settings=KEEPS)
    crash(operator, worker.config.worker)
    return worker


def block_uploads(workers: Workers, slot: int = 0) -> Path:
    """Uploads of this worker's part of step 2 fail until the file is deleted."""
    part = folder(workers, 2) / f"worker-{slot:05d}"
    part.write_text("uploads fail")
    return part


def hide_storage(workers: Workers) -> Path:
    """Uploads fail from now on."""
    hidden = workers.storage.with_name("hidden")
    workers.storage.rename(hidden)
    workers.storage.write_text("not a folder")
    return hidden


def show_storage(workers: Workers, hidden: Path) -> None:
    workers.storage.unlink()
    hidden.rename(workers.storage)


def test_a_described_step_is_read_from_the_disk_and_stored_afterwards(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = one_worker(operator, workers)
    assert in_store(workers) == []
    names = sorted(path.name for path in folder(workers, 2).iterdir())
    assert names == ["worker-00000.staged.json"], "nothing is uploaded yet"
    promised = merge_descriptions(run_store(workers), POINT, workers=1)
    go_on(operator)
    worker.shows("read 2 {'rank0.bin': b'two'}")
    state = operator.until(lambda s: s.committed and s.attempt == 2)
    assert (state.committed.id, state.holds) == (POINT, (POINT,))
    assert run_store(workers).manifest(POINT) == promised


def test_files_of_a_resume_point_stay_on_the_disk_until_they_are_stored(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = one_worker(operator, workers)
    merge_descriptions(run_store(workers), POINT, workers=1)
    part = block_uploads(workers)
    operator.order(Hold(attempt=2, in_place=True, flush=(2,), resolve=CLAIM), settings=KEEPS)
    operator.until(lambda s: s.resolution)
    go_on(operator)
    worker.shows("read 2 {'rank0.bin': b'two'}")
    run, beat = run_store(workers), layout.beat_key(1)
    first = run.read(Beat, beat)
    eventually(lambda: run.read(Beat, beat) != first, what="a beat of the attempt")
    assert run.read(Beat, beat).committed is None, "it is not in the store yet"
    state = operator.until(lambda s: s.problems and s.attempt == 2)
    assert state.problems[0].type == "StorageUnavailable"
    staging = workers.folder / "run-0-1/staging"
    staged = [path for path in workers.folder.rglob("rank0.bin") if "staging" in path.parts]
    assert [path.read_bytes() for path in staged] == [b"two"], staging
    # It dies again before the upload, and starts from the same files.
    operator.order(Hold(attempt=3, in_place=True), settings=KEEPS)
    operator.until(lambda s: s.phase == "Idle" and s.holds == (POINT,) and s.held.attempt == 3)
    operator.order(replace(start(3, resume=POINT), staged=True), settings=KEEPS)
    eventually(lambda: worker.output.count("read 2 ") == 2, what="a second read")
    part.unlink()
    operator.until(lambda s: s.committed and not s.problems)
    assert in_store(workers) == [2]


def test_an_order_to_upload_replaces_one_to_describe(
    operator: OperatorStandIn, workers: Workers
) -> None:
    one_worker(operator, workers)
    order = Hold(attempt=2, flush=(2,), flush_seconds=60.0, flush_allowed=60.0)
    operator.order(order, settings=KEEPS)
    operator.until(lambda s: s.committed and s.phase == "Idle" and not s.held.in_place)
    assert in_store(workers) == [2]


def test_a_file_that_changes_after_its_description_is_never_resumed_again(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = one_worker(operator, workers)
    merge_descriptions(run_store(workers), POINT, workers=1)
    part = block_uploads(workers)
    go_on(operator)
    worker.shows("read 2 {'rank0.bin': b'two'}")
    [staged] = [path for path in workers.folder.rglob("rank0.bin") if "staging" in path.parts]
    facts = staged.stat()
    staged.chmod(0o600)
    staged.write_bytes(b"too")
    shutil.os.utime(staged, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    part.unlink()
    state = operator.until(
        lambda s: any(p.type == "CheckpointUnfinished" for p in s.problems) and not s.holds
    )
    [message] = [p.message for p in state.problems if p.type == "CheckpointUnfinished"]
    assert message == (
        "rank0.bin of step 2 has changed on the disk of worker 0 since it was summed, so no "
        "attempt resumes from this checkpoint again. Check that nothing writes to checkpoints, "
        "and the disk"
    )
    eventually(lambda: run_store(workers).is_bad(POINT), what="the record in bad/")
    assert in_store(workers) == []


def test_workers_of_one_node_read_each_others_staged_files(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    gang = [workers.start(SAVE_OR_READ, slot=slot, settings=KEEPS) for slot in (0, 1)]
    operator.order(start(workers=2), settings=KEEPS)
    crash(operator, *(worker.config.worker for worker in gang))
    promised = merge_descriptions(run_store(workers), POINT, workers=2)
    assert promised is not None
    parts = [block_uploads(workers, slot) for slot in (0, 1)]
    states = [operator.until(lambda _: True, worker=w.config.worker) for w in gang]
    holders = tuple(
        PartHolder(slot=s.slot, source=PeerSource(address=s.serves, secret=s.agent)) for s in states
    )
    go_on(operator, workers=2, holders=holders)
    for worker in gang:
        worker.shows("read 2 {'rank0.bin': b'two', 'rank1.bin': b'two'}")
    assert in_store(workers) == []
    for part in parts:
        part.unlink()
    operator.until(lambda s: s.committed, worker=gang[0].config.worker)
    assert json.loads((folder(workers, 2) / "manifest.json").read_text())["workers"] == 2


def test_a_file_of_another_node_is_read_once_it_is_stored(
    operator: OperatorStandIn, workers: Workers
) -> None:
    prepare_storage(workers)
    caches = [str(workers.folder / f"cache-{slot}") for slot in (0, 1)]  # each has its own node
    gang = [
        workers.start(SAVE_OR_READ, slot=slot, settings=KEEPS, cache=cache)
        for slot, cache in enumerate(caches)
    ]
    operator.order(start(workers=2), settings=KEEPS)
    crash(operator, *(worker.config.worker for worker in gang))
    merge_descriptions(run_store(workers), POINT, workers=2)
    gang[1].process.send_signal(signal.SIGSTOP)
    go_on(operator, workers=2)
    state = operator.until(lambda s: s.problems, worker=gang[0].config.worker)
    [problem] = state.problems
    assert (problem.type, problem.reason) == ("CheckpointWaiting", "NotUploaded")
    assert problem.message == (
        "processes wait for a checkpoint: worker-00001/rank1.bin of step-000000002-attempt-1 is on "
        "a worker's disk, and that worker still uploads it"
    )
    gang[1].process.send_signal(signal.SIGCONT)
    for worker in gang:
        worker.shows("read 2 {'rank0.bin': b'two', 'rank1.bin': b'two'}")
    eventually(lambda: in_store(workers) == [2], what="the commit")
