"""The results that a node keeps for its tasks."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.task_workers import cache_in, output_of
from trainrun.errors import ObjectNotFound
from trainrun.tasks.cache import ResultCache, ResultDamaged
from trainrun.tasks.records import Output
from trainrun.tasks.values import keep_folder


def a_place(folder: Path, name: str = "place") -> Path:
    place = folder / name
    place.mkdir()
    return place


def nothing(_path: Path) -> None:
    raise ObjectNotFound("nowhere")


def keep(
    cache: ResultCache, folder: Path, data: bytes, *, used: float = 0, node: bool = False
) -> Output:
    output = replace(output_of(data), kept="Node") if node else output_of(data)
    path = folder / "result"
    path.write_bytes(data)
    target = cache.add(output, path)
    os.utime(target, (used, used))
    return output


def test_what_was_not_used_for_longest_goes_first_and_what_is_in_no_store_on_a_full_disk(
    tmp_path: Path,
) -> None:
    cache = cache_in(tmp_path / "cache", bound=1 << 20)
    only_here = keep(cache, tmp_path, b"node" * 10, used=1, node=True)
    old = keep(cache, tmp_path, b"old." * 10, used=2)
    new = keep(cache, tmp_path, b"new." * 10, used=3)

    cache.shrink(40)
    assert [cache.find(it.digest) is not None for it in (only_here, old, new)] == [1, 0, 1]
    cache.shrink(40, everything=True)
    assert [cache.find(it.digest) is not None for it in (only_here, old, new)] == [1, 0, 0]
    cache.shrink(0)
    assert cache.find(only_here.digest)
    cache.shrink(0, everything=True)
    assert cache.find(only_here.digest) is None


def test_the_cache_keeps_its_bound_by_itself(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "cache", bound=640)
    for number in range(50):
        keep(cache, tmp_path, bytes([number]) * 100, used=number + 1)
    there = list((tmp_path / "cache/store").iterdir())
    assert sum(path.stat().st_size for path in there) <= 640


def test_a_result_in_use_is_not_removed(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "cache")
    output = keep(cache, tmp_path, b"value")
    path = cache.take(output, a_place(tmp_path), nothing)
    cache.shrink(0)
    assert path.read_bytes() == b"value"
    assert cache.find(output.digest)


def test_a_folder_in_use_is_not_removed_and_goes_with_its_tar(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "cache")
    (made := a_place(tmp_path, "made")).joinpath("file").write_text("hello")
    output = keep_folder(made, tmp_path / "tar")
    cache.add(output, tmp_path / "tar")
    place = a_place(tmp_path)
    folder = cache.take(output, place, nothing)
    cache.shrink(0)
    assert folder.joinpath("file").read_text() == "hello"
    assert cache.take(output, a_place(tmp_path, "other"), nothing) == folder

    for path in tmp_path.glob("*/" + output.digest):
        path.unlink()
    cache.shrink(0)
    assert not folder.exists()


@pytest.mark.case("tasks", "A copy of a result on a worker's disk is damaged")
@pytest.mark.parametrize("flipped", [b"valuE", b"valu"])
def test_a_copy_that_is_damaged_on_this_disk_is_brought_again(
    tmp_path: Path, flipped: bytes
) -> None:
    output = keep(cache_in(tmp_path / "cache"), tmp_path, b"value")
    copy = tmp_path / "cache/store" / output.digest
    copy.chmod(0o600)
    copy.write_bytes(flipped)

    later = cache_in(tmp_path / "cache")  # of a process that has not seen it yet
    path = later.take(output, a_place(tmp_path), lambda to: void(to.write_bytes(b"value")))
    assert path.read_bytes() == b"value"


def test_what_is_brought_damaged_is_kept_nowhere(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "cache")
    output = output_of(b"value")
    with pytest.raises(ResultDamaged):
        cache.take(output, a_place(tmp_path), lambda to: void(to.write_bytes(b"valuE")))
    assert not any(path.is_file() for path in (tmp_path / "cache/store").rglob("*"))


def test_many_that_want_the_same_bring_it_once(tmp_path: Path) -> None:
    output, calls = output_of(b"value"), []

    def bring(to: Path) -> None:
        calls.append(to)
        to.write_bytes(b"value")

    def take(number: int) -> None:
        cache_in(tmp_path / "cache").take(output, a_place(tmp_path, f"place-{number}"), bring)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len([*tmp_path.glob("place-*/*")]) == 8


def void(_: object) -> None:
    """For a lambda that must return nothing."""


def test_whoever_deletes_the_cache_for_room_costs_copies_alone(tmp_path: Path) -> None:
    cache = cache_in(tmp_path / "cache")
    lost = keep(cache, tmp_path, b"first")
    for kind in ("store", "node", "folders"):
        (tmp_path / "cache" / kind).rename(tmp_path / f"gone-{kind}")
    assert cache.find(lost.digest) is None
    assert cache.find(keep(cache, tmp_path, b"second").digest)
