"""What `trainrun checkpoints` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, Through, checkpoint_id
from trainrun.checkpoint.inspection import list_checkpoints, verify
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.selection import ObjectInfo
from trainrun.checkpoint.writer import set_aside
from trainrun.errors import ObjectNotFound

if TYPE_CHECKING:
    from pathlib import Path


def test_every_checkpoint_has_a_state_and_a_reason(any_bench: Bench) -> None:
    bench = any_bench
    bench.resolve(1)
    bench.commit(step=10)
    bench.commit(step=20)
    bench.part(step=30, worker=1, workers=2, files={1: {"a": b"xyz"}})
    bench.resolve(2)
    bench.commit(attempt=1, step=40)
    set_aside(bench.run, checkpoint_id(1, 10), "worker-00000/model-rank0.pt: CRC32 differs")
    found = list_checkpoints(bench.run)
    assert [(info.id.step, info.state, info.reason) for info in found] == [
        (10, "bad", "worker-00000/model-rank0.pt: CRC32 differs"),
        (20, "good", ""),
        (30, "incomplete", "no manifest; done: workers 1"),
        (40, "fenced", "attempt 2 started from something older"),
    ]
    assert (found[1].files, found[1].size_bytes) == (3, 4026)
    assert found[1].modified > 1_600_000_000
    assert (found[2].files, found[2].size_bytes) == (1, 3)


def test_a_checkpoint_that_only_lacks_its_manifest_is_what_the_next_start_takes(
    any_bench: Bench,
) -> None:
    bench = any_bench
    bench.resolve(1)
    for worker in (0, 1):
        bench.part(step=30, worker=worker, workers=2, files={worker: {f"{worker}.pt": b"abc"}})
    (info,) = list_checkpoints(bench.run)
    assert (info.state, info.reason) == ("good", "all parts are stored; the next start commits it")
    assert bench.resolve(2).resume == info.id


def test_damage_that_the_listing_shows_is_bad(bench: Bench, folder: Path) -> None:
    name = bench.commit(step=10).id.name
    (folder / "checkpoints" / name / "worker-00001" / "model-rank1.pt").unlink()
    (info,) = list_checkpoints(bench.run)
    assert (info.state, info.reason) == ("bad", "worker-00001/model-rank1.pt: missing")
    assert not bench.run.bad()  # looking changes nothing


def test_verify_finds_what_a_listing_cannot(any_bench: Bench) -> None:
    any_bench.commit(step=10)
    checkpoint = checkpoint_id(1, 10)
    assert verify(any_bench.run, checkpoint).state == "good"
    key = f"digits/checkpoints/{checkpoint.name}/worker-00001/model-rank1.pt"
    any_bench.run.store.put(key, bytes(2000))
    info = verify(any_bench.run, checkpoint)
    assert info.state == "bad"
    assert "worker-00001/model-rank1.pt: CRC32" in info.reason
    assert not any_bench.run.bad()


def test_damage_stays_damage_where_a_listing_does_not_show_the_manifest(bench: Bench) -> None:
    """What lacks its manifest is taken for deleted only if that cannot be read by its name."""
    checkpoint = bench.commit(step=10).id
    key = f"digits/checkpoints/{checkpoint.name}/worker-00001/model-rank1.pt"
    bench.run.store.put(key, bytes(2000))

    class Late(Through):
        """Of one checkpoint's folder it lists all but the manifest."""

        def list(self, prefix: str) -> list[ObjectInfo]:
            found = self._store.list(prefix)
            return [it for it in found if checkpoint.name not in prefix or "manifest" not in it.key]

    late = RunStore(Late(bench), "digits")  # type: ignore[arg-type]
    info = verify(late, checkpoint)
    assert info.state == "bad"
    assert "worker-00001/model-rank1.pt: CRC32" in info.reason


def test_verify_names_a_checkpoint_that_is_not_there(bench: Bench) -> None:
    with pytest.raises(ObjectNotFound, match="has no checkpoint step-000000099-attempt-1"):
        verify(bench.run, checkpoint_id(1, 99))


def test_an_empty_run_has_no_checkpoints(bench: Bench) -> None:
    assert list_checkpoints(bench.run) == []
