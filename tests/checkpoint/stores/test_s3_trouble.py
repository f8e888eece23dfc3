"""An S3 server that is away, slow, refuses, or loses answers."""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.tcp_proxy import TcpProxy, tcp_proxy
from tests.support.certificates import TestAuthority
from tests.support.checkpoints import (
    Bench,
    Counting,
    checkpoint_id,
    expected_directory,
    materialize,
    read_directory,
)
from tests.support.eventually import eventually
from tests.support.plain_s3 import plain_s3
from tests.support.s3_server import S3Server, free_port
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.checkpoint.writer import Upload, write_part
from trainrun.errors import (
    ObjectTooLarge,
    PutIfAbsentUnsupported,
    StoreDenied,
    StoreMisconfigured,
    StoreUnavailable,
    TransferCancelled,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def proxy(s3_server: S3Server, s3_uri: str) -> Iterator[TcpProxy]:
    with tcp_proxy(s3_server.port) as proxy:
        yield proxy


@pytest.mark.case("storage", "The store is unreachable while training")
def test_a_store_that_is_away_for_a_while_loses_nothing(
    own_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in own_s3.environment().items():
        monkeypatch.setenv(name, value)
    with contextlib.closing(open_store("s3://bucket")) as store:
        bench = Bench(run=RunStore(store, "digits"), scratch=tmp_path / "scratch")
        bench.resolve(1)
        bench.commit(step=10)
        own_s3.stop()
        files = bench.save(0, {"model.pt": b"x"})
        upload = Upload()

        with pytest.raises(StoreUnavailable, match="cannot write s3://bucket/digits"):
            bench.store(files, step=20, upload=upload)
        answer = bench.resolve(2)
        assert answer.outcome == "Unavailable"
        assert "Could not connect to the endpoint URL" in answer.message
        own_s3.start()
        assert bench.store(files, step=20, upload=upload) is not None
        assert bench.resolve(2).resume == checkpoint_id(1, 20)


@pytest.mark.case(
    "storage", "Wrong credentials or no such bucket at a first start", counted="the run fails"
)
def test_wrong_credentials_are_told_from_the_start(
    s3_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in (
        ("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch"),
        ("AWS_ACCESS_KEY_ID", "InvalidAccessKeyId"),
    ):
        monkeypatch.setenv(name, "wrong")
        with contextlib.closing(open_store(s3_uri)) as store:
            with pytest.raises(StoreDenied) as caught:
                store.probe()
            assert code in str(caught.value)
            assert str(caught.value).endswith("check the access key, its secret and the endpoint")
            answer = Bench(run=RunStore(store, "digits"), scratch=Path("/")).resolve(1)
            assert answer.outcome == "Misconfigured"
            assert code in answer.message


def test_no_credentials_at_all_say_what_to_set(
    s3_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        if name not in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with contextlib.closing(open_store(s3_uri)) as store:
        with pytest.raises(StoreDenied, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
            store.list("")


def test_a_missing_bucket_is_named(s3_uri: str) -> None:
    with contextlib.closing(open_store("s3://no-such-bucket/team")) as store:
        with pytest.raises(StoreMisconfigured) as caught:
            store.probe()
        assert "NoSuchBucket" in str(caught.value)
        assert "Create bucket 'no-such-bucket' or correct storage.uri" in str(caught.value)
        answer = Bench(run=RunStore(store, "digits"), scratch=Path("/")).resolve(1)
        assert answer.outcome == "Misconfigured"
        assert "no-such-bucket" in answer.message


def test_an_impossible_bucket_name_or_endpoint_is_named(s3_uri: str) -> None:
    with contextlib.closing(open_store("s3://Not_A_Bucket!/x")) as store:
        with pytest.raises(StoreMisconfigured, match="Not_A_Bucket!"):
            store.list("")
    with contextlib.closing(open_store("s3://bucket", endpoint_url="no endpoint")) as store:
        with pytest.raises(StoreMisconfigured, match="endpointURL: Invalid endpoint: no endpoint"):
            store.list("")


def test_an_object_above_the_limit_of_its_reader_is_not_read(opened: ObjectStore) -> None:
    opened.put("story.json", b"x" * 1001)
    opened.put("small.json", b"x" * 1000)
    with contextlib.closing(open_store(opened.uri, largest=1000)) as reader:
        assert reader.get("small.json") == b"x" * 1000
        told = "story.json has 1001 bytes, and at most 1000 are read here. No record"
        with pytest.raises(ObjectTooLarge, match=told):
            reader.get("story.json")


@pytest.mark.case("storage", "The store is unreachable at a restart")
def test_an_unreachable_endpoint_is_unavailable(s3_uri: str) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    with contextlib.closing(open_store(s3_uri, endpoint_url=endpoint)) as store:
        with pytest.raises(StoreUnavailable, match="Could not connect to the endpoint URL"):
            store.get("a")


def test_keys_below_an_object_are_refused_with_a_reason(opened: ObjectStore) -> None:
    opened.put("a", b"x")
    with pytest.raises(StoreMisconfigured, match="cannot hold both a key and keys below it"):
        opened.put("a/b", b"y")


def test_a_claim_whose_answer_was_lost_is_ours(
    proxied: ObjectStore, proxy: TcpProxy, opened: ObjectStore
) -> None:
    proxy.lose_answers = 1
    assert proxied.put_if_absent("claim", b"mine")
    assert proxy.lose_answers == 0
    assert opened.get("claim") == b"mine"
    proxy.lose_answers = 1
    assert not proxied.put_if_absent("claim", b"yours")
    assert opened.get("claim") == b"mine"


def test_an_answer_that_breaks_off_is_asked_for_again(
    proxied: ObjectStore, proxy: TcpProxy, opened: ObjectStore, tmp_path: Path
) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "file").write_bytes(content)
    opened.put_file("file", tmp_path / "file", crc32=zlib.crc32(content))
    proxy.cut_answers_after = 1_000_000
    proxied.get_file("file", tmp_path / "back", size=len(content), crc32=zlib.crc32(content))
    assert proxy.cut_answers_after is None
    assert (tmp_path / "back").read_bytes() == content


def test_a_slow_server_is_only_slow(proxied: ObjectStore, proxy: TcpProxy, tmp_path: Path) -> None:
    proxy.delay = 0.03
    bench = Bench(run=RunStore(proxied, "digits"), scratch=tmp_path / "scratch")
    bench.resolve(1)
    bench.commit(step=10)
    assert bench.resolve(2).resume == checkpoint_id(1, 10)
    directory = materialize(bench.run, checkpoint_id(1, 10), cache_dir=tmp_path / "cache")
    assert read_directory(directory) == expected_directory(1, 10)


def test_a_slow_upload_shows_progress_and_can_be_given_up(
    proxied: ObjectStore, proxy: TcpProxy, opened: ObjectStore, tmp_path: Path
) -> None:
    proxy.delay = 0.05
    bench = Bench(run=RunStore(proxied, "digits"), scratch=tmp_path / "scratch")
    files = bench.save(0, {f"file-{n}": bytes(1000) for n in range(200)})
    upload = Counting()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(
            write_part,
            bench.run,
            attempt=1,
            step=1,
            worker=0,
            workers=1,
            files=files,
            metrics={},
            upload=upload,
        )
        eventually(lambda: upload.moved > 0)
        upload.cancel()
        with pytest.raises(TransferCancelled):
            future.result()
    assert upload.moved < 200_000
    assert not any("done" in item.key for item in opened.list(""))


def test_a_large_upload_whose_beginning_got_no_answer_leaves_no_other_behind(
    proxied: ObjectStore, proxy: TcpProxy, opened: ObjectStore, tmp_path: Path
) -> None:
    """One to three unfinished uploads stayed in the bucket, unseen and paid for."""
    content = os.urandom(40 << 20)
    (tmp_path / "large").write_bytes(content)
    proxy.lose_answers = 4  # three to the question whether it is there, one to the beginning
    proxied.put_file("large", tmp_path / "large", crc32=zlib.crc32(content))
    assert proxy.lose_answers == 0
    assert opened.size("large") == len(content)
    left: list[str] = []
    opened.abort_uploads("large", of=lambda key: bool(left.append(key)))
    assert left == []


def test_a_large_upload_that_fails_leaves_no_parts_behind(
    opened: ObjectStore, s3_server: S3Server, tmp_path: Path
) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(40 << 20))
    moved = threading.Event()

    def give_up(count: int) -> None:
        moved.set()
        raise TransferCancelled("enough")

    with pytest.raises(TransferCancelled):
        opened.put_file("large", path, crc32=zlib.crc32(path.read_bytes()), progress=give_up)
    assert moved.is_set()
    assert opened.list("") == []
    parts = (s3_server.data / "bucket" / ".sgwtmp").rglob("*")
    assert not [part for part in parts if part.is_file() and part.stat().st_size > 0]


@pytest.fixture
def any_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")


@pytest.mark.slow
@pytest.mark.usefixtures("any_credentials")
def test_a_server_that_ignores_the_condition_is_refused() -> None:
    with plain_s3() as server:
        with contextlib.closing(open_store("s3://bkt", endpoint_url=server.endpoint)) as store:
            with pytest.raises(PutIfAbsentUnsupported) as caught:
                store.probe()
            assert str(caught.value).startswith(
                "s3://bkt: the server overwrote an existing object despite If-None-Match: * in "
                "PutObject, so a claim cannot be written exactly once."
            )
            answer = Bench(run=RunStore(store, "digits"), scratch=Path("/")).resolve(1)
            assert answer.outcome == "Misconfigured"


@pytest.mark.usefixtures("any_credentials")
def test_a_server_that_rejects_the_condition_is_refused() -> None:
    with plain_s3(refuses_conditions=True) as server:
        with contextlib.closing(open_store("s3://bkt", endpoint_url=server.endpoint)) as store:
            with pytest.raises(PutIfAbsentUnsupported, match=r"NotImplemented.*If-None-Match"):
                store.probe()


@pytest.mark.slow
@pytest.mark.usefixtures("any_credentials")
def test_a_conflict_is_tried_again() -> None:
    with plain_s3(conflicts=3) as server:
        with contextlib.closing(open_store("s3://bkt", endpoint_url=server.endpoint)) as store:
            assert store.put_if_absent("claim", b"mine")
            assert not store.put_if_absent("claim", b"yours")
            assert server.conflicts == 0


@pytest.mark.usefixtures("any_credentials")
@pytest.mark.slow
def test_endless_conflicts_end_in_an_error() -> None:
    with plain_s3(conflicts=1000) as server:
        with contextlib.closing(open_store("s3://bkt", endpoint_url=server.endpoint)) as store:
            with pytest.raises(StoreUnavailable, match="other writers keep overwriting it"):
                store.put_if_absent("claim", b"mine")


@pytest.mark.usefixtures("any_credentials")
def test_a_certificate_that_the_worker_does_not_trust_is_no_outage(tmp_path: Path) -> None:
    """Asked again it says the same: somebody has to give the worker another authority."""
    with plain_s3() as server:
        server.socket = (
            TestAuthority().server(tmp_path).wrap_socket(server.socket, server_side=True)
        )
        endpoint = server.endpoint.replace("http:", "https:")
        with (
            contextlib.closing(open_store("s3://bucket", endpoint_url=endpoint)) as store,
            pytest.raises(StoreMisconfigured, match="AWS_CA_BUNDLE names a file"),
        ):
            store.get("key")
