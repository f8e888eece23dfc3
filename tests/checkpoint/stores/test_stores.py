"""What every store promises, tried on a folder and on servers of S3, Google and Azure."""

from __future__ import annotations

import random
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from trainrun.checkpoint.run_store import open_store
from trainrun.checkpoint.stores.parts import PART
from trainrun.checkpoint.stores.store import BrowsableStore, ObjectStore
from trainrun.errors import (
    CheckpointDamaged,
    ObjectNotFound,
    StoreError,
    StoreMisconfigured,
    TransferCancelled,
)

if TYPE_CHECKING:
    from pathlib import Path


def put_file(store: ObjectStore, key: str, path: Path) -> int:
    crc32 = zlib.crc32(path.read_bytes())
    store.put_file(key, path, crc32=crc32)
    return crc32


def is_flat(store: ObjectStore) -> bool:
    """Whether it has no folders; its local server is a slow one."""
    return store.uri.startswith(("gs://", "az://"))


def large_file(path: Path) -> Path:
    """Three parts, the last one short, no two alike."""
    path.write_bytes(b"".join(bytes([n]) * (PART - n) for n in range(3)))
    return path


def test_an_object_is_read_as_it_was_written(store: ObjectStore) -> None:
    store.put("a/b.json", b"one")
    store.put("a/b.json", b"two")
    assert store.get("a/b.json") == b"two"


def test_an_absent_object_is_named(store: ObjectStore) -> None:
    with pytest.raises(ObjectNotFound, match=r"cannot read .*/a/missing\.json"):
        store.get("a/missing.json")


def test_put_if_absent_keeps_what_is_there(store: ObjectStore) -> None:
    assert store.put_if_absent("claims/1", b"mine")
    assert not store.put_if_absent("claims/1", b"yours")
    assert store.get("claims/1") == b"mine"


def test_put_if_absent_of_the_same_content_is_a_success(store: ObjectStore) -> None:
    assert store.put_if_absent("claims/1", b"mine")
    assert store.put_if_absent("claims/1", b"mine")


def test_of_eight_racing_writers_exactly_one_wins(store: ObjectStore) -> None:
    barrier = threading.Barrier(8)

    def claim(key: str, writer: int) -> bool:
        barrier.wait()
        return store.put_if_absent(key, f"writer {writer}".encode())

    with ThreadPoolExecutor(8) as pool:
        for number in range(10):
            key = f"claims/{number}"
            won = list(pool.map(claim, [key] * 8, range(8)))
            assert won.count(True) == 1
            assert store.get(key) == f"writer {won.index(True)}".encode()


def test_a_listing_has_keys_and_sizes_in_order(store: ObjectStore) -> None:
    for key in ("run/b", "run/a/2", "run/a/1", "other/x"):
        store.put(key, key.encode())
    assert [(item.key, item.size) for item in store.list("run/")] == [
        ("run/a/1", 7),
        ("run/a/2", 7),
        ("run/b", 5),
    ]
    assert store.list("nothing/") == []
    assert len(store.list("")) == 4


def test_the_folders_at_the_top_are_listed_without_what_is_in_them(store: BrowsableStore) -> None:
    for key in ("run/a/1", "run-2/b", "other/x"):
        store.put(key, b"x")
    assert store.folders() == ("other", "run", "run-2")
    assert store.folders("run/") == ("a",)
    assert store.folders("run/a/") == ()


@pytest.mark.slow
def test_a_listing_of_more_than_one_page_is_complete(store: ObjectStore) -> None:
    count = 300 if is_flat(store) else 1100  # Azure lists 5,000 at once, and deletes 256
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.put(f"many/{n:04d}", b"x"), range(count)))
    assert len(store.list("many/")) == count
    store.delete([f"many/{n:04d}" for n in range(count)])
    assert store.list("many/") == []


def test_deleting_what_is_not_there_is_fine(store: ObjectStore) -> None:
    store.put("a/1", b"x")
    store.delete(["a/1", "a/2"])
    assert store.list("") == []


@pytest.mark.parametrize("name", ["plain", "with space", "ünï+cödé%&?#", ".hidden", "a=b,c"])
def test_any_file_name_survives(store: ObjectStore, name: str) -> None:
    store.put(f"dir/{name}", b"x")
    assert [item.key for item in store.list("dir/")] == [f"dir/{name}"]
    assert store.get(f"dir/{name}") == b"x"


@pytest.mark.parametrize("key", ["", "/a", "a/../b", "a//b", "a/", "./a"])
def test_a_key_cannot_lead_out_of_the_store(store: ObjectStore, key: str) -> None:
    with pytest.raises(ValueError, match="not an object key"):
        store.put(key, b"x")


def test_the_size_of_an_object_is_known_by_its_name(store: ObjectStore) -> None:
    store.put("dir/some", b"123")
    assert (store.size("dir/some"), store.size("dir/none")) == (3, None)


def test_an_empty_file_travels(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    put_file(store, "dir/empty", tmp_path / "empty")
    store.get_file("dir/empty", tmp_path / "back", size=0, crc32=0)
    assert (tmp_path / "back").read_bytes() == b""


@pytest.mark.slow
def test_a_large_file_travels_in_parts(store: ObjectStore, tmp_path: Path) -> None:
    path = large_file(tmp_path / "large")
    moved = []
    crc32 = zlib.crc32(path.read_bytes())
    store.put_file("dir/large", path, crc32=crc32, progress=moved.append)
    store.get_file("dir/large", tmp_path / "back", size=path.stat().st_size, crc32=crc32)
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    assert sum(moved) == path.stat().st_size


def test_ranges_of_a_file_come_alone_and_at_their_places(
    store: ObjectStore, tmp_path: Path
) -> None:
    store.put("file", b"0123456789")
    store.get_file("file", tmp_path / "back", size=10, crc32=None, ranges=[(1, 2), (6, 3)])
    assert (tmp_path / "back").read_bytes() == b"\x0012\x00\x00\x00678\x00"


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 2 * PART])
def test_the_checksum_of_a_file_is_that_of_what_was_stored(
    store: ObjectStore, tmp_path: Path, size: int
) -> None:
    content = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(content)
    crc32 = store.put_file("dir/file", tmp_path / "file")
    assert crc32 == zlib.crc32(content)
    store.get_file("dir/file", tmp_path / "back", size=size, crc32=crc32)


def test_a_file_of_another_size_is_damage(store: ObjectStore, tmp_path: Path) -> None:
    path = large_file(tmp_path / "large")
    crc32 = put_file(store, "dir/large", path)
    size = path.stat().st_size
    for wrong in (size - 1, size + 1, size + PART, 0):
        with pytest.raises(CheckpointDamaged, match=rf"dir/large: {size} bytes, should be {wrong}"):
            store.get_file("dir/large", tmp_path / "back", size=wrong, crc32=crc32)


@pytest.mark.slow
def test_a_file_of_other_content_is_damage(store: ObjectStore, tmp_path: Path) -> None:
    path = large_file(tmp_path / "large")
    crc32 = put_file(store, "dir/large", path)
    message = rf"dir/large: CRC32 {crc32:08x}, should be {crc32 ^ 1:08x}: its content changed"
    with pytest.raises(CheckpointDamaged, match=message):
        store.get_file("dir/large", tmp_path / "back", size=path.stat().st_size, crc32=crc32 ^ 1)


def test_a_missing_file_is_named(store: ObjectStore, tmp_path: Path) -> None:
    for size in (0, 5, 3 * PART):
        with pytest.raises(ObjectNotFound, match=r"dir/gone"):
            store.get_file("dir/gone", tmp_path / "back", size=size, crc32=0)


@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_changes_on_its_way_is_not_stored(
    store: ObjectStore, tmp_path: Path, large: bool
) -> None:
    path = large_file(tmp_path / "file")
    if not large:
        path.write_bytes(b"small")
    with pytest.raises(StoreError):
        store.put_file("dir/file", path, crc32=zlib.crc32(path.read_bytes()) ^ 1)
    assert store.list("") == []


@pytest.mark.parametrize("large", [False, True])
def test_an_upload_can_be_given_up(store: ObjectStore, tmp_path: Path, large: bool) -> None:
    path = large_file(tmp_path / "file")
    if not large:
        path.write_bytes(b"small")

    def give_up(count: int) -> None:
        raise TransferCancelled("enough")

    with pytest.raises(TransferCancelled):
        store.put_file("dir/file", path, crc32=zlib.crc32(path.read_bytes()), progress=give_up)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        (
            "ftp://bucket/x",
            "only file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix and "
            "az://container/prefix are supported",
        ),
        ("/tmp/x", "only file:///absolute/path, s3://bucket/prefix, "),
        ("file://tmp/x", "a file URI is file:///absolute/path"),
        ("s3:///x", "the bucket is missing; write s3://bucket/prefix"),
        ("gs:///x", "the bucket is missing; write gs://bucket/prefix"),
    ],
)
def test_an_address_of_another_form_says_what_is_allowed(uri: str, message: str) -> None:
    with pytest.raises(StoreMisconfigured) as caught:
        open_store(uri)
    assert str(caught.value).startswith(f"{uri}: ")
    assert message in str(caught.value)


def test_a_store_probes_itself_and_leaves_nothing(store: ObjectStore) -> None:
    store.probe()
    assert store.list("") == []


@pytest.mark.slow
def test_writing_beside_a_deletion_that_removes_empty_folders_never_fails(
    store: ObjectStore,
) -> None:
    count = 10 if is_flat(store) else 100
    stop = threading.Event()

    def delete() -> None:
        while not stop.is_set():
            store.delete(["run/a/b/first"])

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete)
        try:
            for number in range(count):
                store.put("run/a/b/first", b"x")
                store.put_if_absent(f"run/a/c/{number}", b"x")
        finally:
            stop.set()
        deleting.result()
    assert len(store.list("run/a/c/")) == count
