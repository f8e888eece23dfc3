"""Describes checkpoints that are on the workers' disks: the next attempt may start from them.

Layer: rules over `RunStore`, used by the agent. Each worker describes its part as it would after
its upload: names, sizes, checksums. Slot 0's agent merges these records. Invariants: a description
is written once; a merged one exists before an attempt's record names the checkpoint; the files may
be uploaded later, in any order, and their manifest is the same.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.merge import merge_ranks, merge_workers
from trainrun.checkpoint.records import DoneMarker, Manifest
from trainrun.checkpoint.selection import all_parts_done
from trainrun.checkpoint.stores.parts import combine, cut, in_order
from trainrun.checkpoint.writer import describe_file, done_marker, same_part
from trainrun.contract import layout
from trainrun.errors import CheckpointConflict, CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from trainrun.checkpoint.records import PartFile
    from trainrun.checkpoint.run_store import RunStore
    from trainrun.checkpoint.stores.parts import Part
    from trainrun.checkpoint.writer import LocalFile, Upload
    from trainrun.contract.checkpoint_id import CheckpointId

PIECE = 32 << 20
"""Bytes of a file that one thread sums."""
BUFFER = 1 << 20


def describe_part(
    run: RunStore,
    checkpoint: CheckpointId,
    *,
    worker: int,
    workers: int,
    files: Sequence[LocalFile],
    metrics: Mapping[str, Any],
    metadata: Mapping[str, Any],
    unchanged: Callable[[], None],
    upload: Upload,
) -> DoneMarker:
    """Sum the files of a worker's part and write its description; returns it.

    Parameters as of `write_part`. May be repeated after any error. Raises CheckpointConflict,
    StoreError, TransferCancelled, and OSError for errors of a local file.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        parts = merge_ranks(_summed(files, pool, upload), step=checkpoint.step)
    marker = done_marker(
        checkpoint,
        parts,
        files,
        worker=worker,
        workers=workers,
        metrics=metrics,
        metadata=metadata,
    )
    unchanged()
    upload.advance(0)
    key = layout.folder(checkpoint) + layout.described_name(worker)
    if not run.write_once(key, marker) and not same_part(marker, run.read(DoneMarker, key)):
        raise CheckpointConflict(
            f"{checkpoint.name}: worker {worker} has described this step before, with other files"
        )
    return marker


def sum_ahead(files: Sequence[LocalFile], upload: Upload) -> None:
    """Sum the files of a part while nothing waits for it, with the cores that nobody else needs:
    `describe_part` finds the sums in `upload`. Raises TransferCancelled, OSError."""
    with ThreadPoolExecutor(1, initializer=_give_way) as pool:
        _summed(files, pool, upload)


def _give_way() -> None:
    if sys.platform == "linux":  # elsewhere this would slow the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def merge_descriptions(run: RunStore, checkpoint: CheckpointId, *, workers: int) -> Manifest | None:
    """Write and return the manifest that the checkpoint will get, once all workers have described
    their parts; None: some have not. Raises CheckpointConflict, CheckpointDamaged, StoreError."""
    names = {slot: layout.described_name(slot) for slot in range(workers)}
    records = _found(run, checkpoint, names.values())
    # A worker that had stored its part has not described it.
    stored = {*names} - {record.worker for record in records}
    records += _found(run, checkpoint, map(layout.marker_name, sorted(stored)))
    if len(records) != workers or not all_parts_done(records):
        return None
    manifest = merge_workers(records).manifest
    key = layout.folder(checkpoint) + layout.STAGED
    if not run.write_once(key, manifest) and run.read(Manifest, key) != manifest:
        raise CheckpointConflict(f"{checkpoint.name}: {layout.STAGED} has other content")
    return manifest


def read_described(run: RunStore, checkpoint: CheckpointId) -> Manifest:
    """The manifest that a checkpoint on the disks will get.

    Raises CheckpointDamaged (also when it is missing), StoreError.
    """
    try:
        return run.read(Manifest, layout.folder(checkpoint) + layout.STAGED)
    except ObjectNotFound as error:
        raise CheckpointDamaged(f"{checkpoint.name}/{layout.STAGED}: missing") from error


def _found(run: RunStore, checkpoint: CheckpointId, names: Iterable[str]) -> list[DoneMarker]:
    keys = [layout.folder(checkpoint) + name for name in names]
    return [*run.find_all(DoneMarker, keys).values()] if keys else []


def _summed(files: Sequence[LocalFile], pool: ThreadPoolExecutor, upload: Upload) -> list[PartFile]:
    plain = [item for item in files if item.other is None]
    jobs: list[tuple[PartFile, list[Part]]] = []
    found: list[PartFile] = []
    for item in plain:
        fact = describe_file(item, read=False)
        before = upload.summed.get((item.rank, item.name))
        if before is not None and replace(before, crc32=fact.crc32) == fact:
            jobs.append((before, []))
        else:
            jobs.append((replace(fact, crc32=0), cut(fact.size, PIECE)))
    pieces = [
        pool.submit(_sum, item, piece.start, piece.size, upload)
        for item, (_, of_file) in zip(plain, jobs, strict=True)
        for piece in of_file
    ]
    sums = in_order(pool, pieces)
    for item, (part, of_file) in zip(plain, jobs, strict=True):
        crc32 = part.crc32
        for piece in of_file:
            crc32 = combine(crc32, next(sums), piece.size)
        found.append(replace(part, crc32=crc32))
        upload.summed[item.rank, item.name] = found[-1]
    return found


def _sum(item: LocalFile, start: int, size: int, upload: Upload) -> int:
    buffer, crc32 = memoryview(bytearray(min(BUFFER, size))), 0
    descriptor = os.open(item.path, os.O_RDONLY)
    with contextlib.closing(os.fdopen(descriptor, "rb", buffering=0)):
        while size > 0:
            upload.advance(0)
            count = os.preadv(descriptor, [buffer[:size]], start)
            if count == 0:
                raise OSError(f"{item.path} became shorter while it was read")
            crc32 = zlib.crc32(buffer[:count], crc32)
            start, size = start + count, size - count
    return crc32
