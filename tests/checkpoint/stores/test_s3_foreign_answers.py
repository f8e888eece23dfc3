"""Answers that are not the store's, or not what was asked for: never wrong bytes, never a crash."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, materialize_initial, read_directory
from tests.support.foreign_answers import Exchange, ForeignAnswers, foreign_answers
from trainrun.checkpoint.reader import initial_on_node
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.errors import CheckpointDamaged, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.s3_server import S3Server

LARGE = 40 << 20
"""Bytes: five parts."""


@pytest.fixture
def proxy(s3_server: S3Server, s3_uri: str) -> Iterator[ForeignAnswers]:
    with foreign_answers(s3_server.port) as proxy:
        yield proxy


def put_large(store: ObjectStore, path: Path, key: str = "weights/model.bin") -> bytes:
    content = os.urandom(LARGE)
    path.write_bytes(content)
    store.put_file(key, path, crc32=zlib.crc32(content))
    return content


@pytest.mark.case("storage", "The store returns a range or version that nobody asked for")
def test_a_range_that_was_not_asked_for_is_not_taken(
    proxied: ObjectStore, proxy: ForeignAnswers, opened: ObjectStore, tmp_path: Path
) -> None:
    """Foreign weights have no checksum: the wrong range would be trained from, silently."""
    put_large(opened, tmp_path / "file")

    def shift(exchange: Exchange) -> None:
        if exchange.headers.get("Range") == "bytes=4194304-8388607":
            exchange.answer["Content-Range"] = f"bytes 0-4194303/{LARGE}"

    proxy.after = shift
    message = r"requested bytes 4194304-8388607, received bytes 0-4"
    with pytest.raises(StoreUnavailable, match=message):
        proxied.get_file("weights/model.bin", tmp_path / "back", size=LARGE, crc32=None)


def test_a_file_that_changes_its_size_meanwhile_is_damage(
    proxied: ObjectStore, proxy: ForeignAnswers, opened: ObjectStore, tmp_path: Path
) -> None:
    size = 9_000_000
    (tmp_path / "file").write_bytes(bytes(size))
    opened.put_file("file", tmp_path / "file", crc32=zlib.crc32(bytes(size)))

    def grow(exchange: Exchange) -> None:
        if exchange.headers.get("Range", "").startswith("bytes=8388608-"):
            exchange.answer["Content-Range"] = f"bytes 8388608-{size - 1}/{size + 1}"

    proxy.after = grow
    with pytest.raises(CheckpointDamaged, match=f"file: {size + 1} bytes, should be {size}"):
        proxied.get_file("file", tmp_path / "back", size=size, crc32=None)


def test_a_server_that_ignores_ranges_gives_no_wrong_bytes(
    proxied: ObjectStore, proxy: ForeignAnswers, opened: ObjectStore, tmp_path: Path
) -> None:
    content = {
        "model.bin": put_large(opened, tmp_path / "file"),
        "small.bin": b"small",
    }
    opened.put("weights/small.bin", b"small")

    def give_all(exchange: Exchange) -> None:
        exchange.status, exchange.body = 200, content[exchange.path.rpartition("/")[2]]
        exchange.answer.pop("Content-Range", None)

    proxy.after = give_all
    with pytest.raises(StoreUnavailable, match=f"received bytes 0-{LARGE - 1}/{LARGE}"):
        proxied.get_file("weights/model.bin", tmp_path / "back", size=LARGE, crc32=None)
    proxied.get_file("weights/small.bin", tmp_path / "small", size=5, crc32=None)
    assert (tmp_path / "small").read_bytes() == b"small"


def test_an_error_page_is_not_the_file(
    proxied: ObjectStore, proxy: ForeignAnswers, opened: ObjectStore, tmp_path: Path
) -> None:
    opened.put("weights/small.bin", b"small")

    def page(exchange: Exchange) -> None:
        exchange.status, exchange.body, exchange.answer = 200, b"<html>", {}

    proxy.after = page
    with pytest.raises(CheckpointDamaged, match="6 bytes, should be 5"):
        proxied.get_file("weights/small.bin", tmp_path / "small", size=5, crc32=None)


@pytest.mark.parametrize("conditional", [True, False])
def test_a_write_that_a_folder_removed_beside_it_has_foiled_is_tried_again(
    proxied: ObjectStore, proxy: ForeignAnswers, opened: ObjectStore, conditional: bool
) -> None:
    """versitygw: it says ExistingObjectIsDirectory then, though there is no such folder."""
    lost = 2

    def foiled(exchange: Exchange) -> None:
        nonlocal lost
        if exchange.method == "PUT" and lost:
            lost -= 1
            exchange.status, exchange.answer = 409, {}
            exchange.body = b"<Error><Code>ExistingObjectIsDirectory</Code></Error>"

    proxy.after = foiled
    if conditional:
        assert proxied.put_if_absent("run/part", b"x")
    else:
        proxied.put("run/part", b"x")
    assert (lost, opened.get("run/part")) == (0, b"x")


@pytest.mark.parametrize("conditions", ["kept", "ignored"])
def test_weights_that_are_overwritten_while_they_are_read_are_read_anew(
    proxied: ObjectStore,
    proxy: ForeignAnswers,
    opened: ObjectStore,
    tmp_path: Path,
    conditions: str,
) -> None:
    """Half of the one and half of the other, of the same length, would not be noticed."""
    put_large(opened, tmp_path / "file")
    files = initial_on_node(proxied, cache_dir=tmp_path / "cache")
    assert not isinstance(files, Path)
    new = put_large(opened, tmp_path / "file")
    etag = next(item.tag for item in opened.list("weights/"))

    def ignore(exchange: Exchange) -> None:
        if exchange.status == 412:
            first, last = map(int, exchange.headers["Range"].removeprefix("bytes=").split("-"))
            exchange.status, exchange.body = 206, new[first : last + 1]
            exchange.answer = {"Content-Range": f"bytes {first}-{last}/{LARGE}", "ETag": etag}

    if conditions == "ignored":
        proxy.after = ignore
    with pytest.raises(StoreUnavailable, match="was overwritten after it was listed"):
        files.directory()
    again = initial_on_node(proxied, cache_dir=tmp_path / "cache")
    assert not isinstance(again, Path)
    assert read_directory(again.directory()) == {"weights/model.bin": new}


@pytest.mark.parametrize(("method", "part"), [("POST", "?uploads"), ("PUT", "partNumber=")])
def test_an_empty_answer_to_a_large_upload_is_an_unavailable_store(
    proxied: ObjectStore, proxy: ForeignAnswers, tmp_path: Path, method: str, part: str
) -> None:
    """It was a KeyError, which nobody expects: the agent ended with all its processes."""

    def empty(exchange: Exchange) -> None:
        if exchange.method == method and part in exchange.path:
            exchange.status, exchange.body, exchange.answer = 200, b"", {}

    proxy.after = empty
    with pytest.raises(StoreUnavailable, match="is a proxy answering for the store"):
        put_large(proxied, tmp_path / "file")
    proxy.after = lambda _: None
    put_large(proxied, tmp_path / "file")


@pytest.mark.parametrize("body", [b"", b"<html>down for maintenance</html>"])
def test_a_small_file_is_not_taken_for_stored_where_something_else_has_answered(
    proxied: ObjectStore, proxy: ForeignAnswers, opened: ObjectStore, tmp_path: Path, body: bytes
) -> None:
    """The agent deleted the files that were staged, and they were not in the store."""
    path = tmp_path / "file"
    path.write_bytes(b"small")

    def foreign(exchange: Exchange) -> None:
        if exchange.method == "PUT":
            exchange.status, exchange.body, exchange.answer = 200, body, {}

    def put_file() -> None:
        proxied.put_file("run/part", path, crc32=zlib.crc32(b"small"))

    proxy.before = foreign
    for write in (
        put_file,
        lambda: proxied.put("run/part", b"small"),
        lambda: proxied.put_if_absent("run/part", b"small"),
    ):
        with pytest.raises(StoreUnavailable, match=r"run/part: the response has no ETag; is a pr"):
            write()
    assert opened.list("run/") == []
    proxy.before = lambda _: None
    put_file()
    assert opened.get("run/part") == b"small"


def test_a_claim_is_ours_whose_answer_something_else_has_replaced(
    proxied: ObjectStore, proxy: ForeignAnswers
) -> None:
    def foreign(exchange: Exchange) -> None:
        if exchange.method == "PUT":
            exchange.status, exchange.body, exchange.answer = 200, b"", {}

    proxy.after = foreign
    with pytest.raises(StoreUnavailable):
        proxied.put_if_absent("run/claim", b"ours")
    proxy.after = lambda _: None
    assert proxied.put_if_absent("run/claim", b"ours")
    assert not proxied.put_if_absent("run/claim", b"theirs")


def test_the_end_of_a_large_upload_is_not_believed_where_something_else_has_answered(
    proxied: ObjectStore, proxy: ForeignAnswers, opened: ObjectStore, tmp_path: Path
) -> None:
    def foreign(exchange: Exchange) -> None:
        if is_completion(exchange):
            exchange.status, exchange.body, exchange.answer = 200, b"<html>down</html>", {}

    proxy.before = foreign
    with pytest.raises(StoreUnavailable, match="has no ETag"):
        put_large(proxied, tmp_path / "file")
    assert opened.list("weights/") == []
    proxy.before, proxy.after = lambda _: None, foreign
    put_large(proxied, tmp_path / "file")  # it has reached the store, which says so when asked
    assert [item.size for item in opened.list("weights/")] == [LARGE]


def is_completion(exchange: Exchange) -> bool:
    return exchange.method == "POST" and "uploadId=" in exchange.path


def sent_parts(proxy: ForeignAnswers) -> int:
    return sum(method == "PUT" and "partNumber=" in path for method, path in proxy.seen)


@pytest.mark.case("storage", "The answer to the end of a large upload is lost")
def test_a_large_file_whose_last_answer_was_lost_is_not_sent_again(
    proxied: ObjectStore, proxy: ForeignAnswers, opened: ObjectStore, tmp_path: Path
) -> None:
    """The repeated completion is refused, for there is no such upload any more."""

    def lose(exchange: Exchange) -> None:
        if is_completion(exchange) and exchange.status == 200:
            exchange.status, exchange.body, exchange.answer = 503, b"", {}

    proxy.after = lose
    content = put_large(proxied, tmp_path / "file")
    assert sent_parts(proxy) == 5
    opened.get_file(
        "weights/model.bin", tmp_path / "back", size=LARGE, crc32=zlib.crc32(content), tag=""
    )


def test_a_large_file_that_is_there_from_an_earlier_try_is_not_sent_again(
    proxied: ObjectStore, proxy: ForeignAnswers, opened: ObjectStore, tmp_path: Path
) -> None:
    content = put_large(opened, tmp_path / "file")
    proxied.put_file("weights/model.bin", tmp_path / "file", crc32=zlib.crc32(content))
    assert sent_parts(proxy) == 0
    put_large(proxied, tmp_path / "file")  # other content under this name is sent
    assert sent_parts(proxy) == 5


@pytest.mark.case("storage", "Agents are killed while they upload files")
def test_what_killed_agents_have_sent_in_part_is_given_up_by_the_next_attempt(
    s3_bench: Bench, s3_server: S3Server
) -> None:
    store = s3_bench.run.store

    def begin(attempt: int) -> str:
        key = f"digits/checkpoints/step-000000010-attempt-{attempt}/worker-00000/model.pt"
        upload = store._client.create_multipart_upload(**store._at(key))  # type: ignore[attr-defined]
        name: str = upload["Key"]
        return name

    def open_uploads() -> set[str]:
        listed = store._client.list_multipart_uploads(Bucket="bucket")  # type: ignore[attr-defined]
        mine = store.prefix  # type: ignore[attr-defined]
        return {u["Key"] for u in listed.get("Uploads", ()) if u["Key"].startswith(mine)}

    s3_bench.resolve(1)
    of_one = begin(1)
    s3_bench.resolve(2)
    of_two = begin(2)
    assert open_uploads() == {of_one, of_two}
    retain(s3_bench.run, attempt=1, keep=2)  # no longer the newest
    assert open_uploads() == {of_one, of_two}
    retain(s3_bench.run, attempt=2, keep=2)
    assert open_uploads() == {of_two}


def test_a_store_that_lists_no_unfinished_uploads_is_tidied_all_the_same(
    proxied: ObjectStore, proxy: ForeignAnswers, tmp_path: Path
) -> None:
    bench = Bench(run=RunStore(proxied, "digits"), scratch=tmp_path / "scratch")
    bench.resolve(1)
    for step in (10, 20, 30):
        bench.commit(step=step)

    def deny(exchange: Exchange) -> None:
        if "uploads" in exchange.path:
            exchange.status, exchange.body = 403, b"<Error><Code>AccessDenied</Code></Error>"

    proxy.after = deny
    assert len(retain(bench.run, attempt=1, keep=2)) == 1


def test_initial_weights_through_a_quiet_proxy_are_what_they_are(
    proxy: ForeignAnswers, opened: ObjectStore, s3_uri: str, tmp_path: Path
) -> None:
    opened.put("a.bin", b"a")
    assert read_directory(materialize_initial(s3_uri, cache_dir=tmp_path)) == {"a.bin": b"a"}
