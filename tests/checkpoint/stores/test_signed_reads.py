"""Ranges come by requests of our own, and by the SDK's where those do not bring them."""

from __future__ import annotations

import contextlib
import os
import zlib
from typing import TYPE_CHECKING

import pytest

from tests.support.certificates import TestAuthority
from tests.support.foreign_answers import Exchange, ForeignAnswers, foreign_answers
from trainrun.checkpoint.run_store import open_store
from trainrun.checkpoint.stores.signed_reads import REFUSALS
from trainrun.errors import ObjectNotFound, StoreDenied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.s3_server import S3Server
    from trainrun.checkpoint.stores.store import ObjectStore

NAMES = ("plain", "with space", "ünï+cödé%&?#~'()", "a=b,c/.hidden")


class Reads:
    """The requests for ranges that a server has seen."""

    def __init__(self, server: ForeignAnswers) -> None:
        self.requests: list[dict[str, str]] = []
        """Their headers."""
        server.before = self._see

    def by_the_sdk(self) -> int:
        return sum("Boto3" in headers.get("User-Agent", "") for headers in self.requests)

    def _see(self, exchange: Exchange) -> None:
        if exchange.method == "GET" and "Range" in exchange.headers:
            self.requests.append(exchange.headers)


@pytest.fixture
def proxy(s3_server: S3Server, s3_uri: str) -> Iterator[ForeignAnswers]:
    with foreign_answers(s3_server.port) as proxy:
        yield proxy


@pytest.fixture
def reads(proxy: ForeignAnswers) -> Reads:
    return Reads(proxy)


def fetch(store: ObjectStore, key: str, path: Path, size: int = 5) -> bytes:
    store.get_file(key, path, size=size, crc32=None)
    return path.read_bytes()


def test_a_file_of_any_name_comes_by_one_request_of_our_own(
    opened: ObjectStore, proxied: ObjectStore, reads: Reads, tmp_path: Path
) -> None:
    for name in NAMES:
        opened.put(f"dir/{name}", b"whole")
        assert fetch(proxied, f"dir/{name}", tmp_path / "back") == b"whole"
    assert len(reads.requests) == len(NAMES)
    assert reads.by_the_sdk() == 0


def test_one_connection_serves_one_file_after_the_other(
    opened: ObjectStore, proxied: ObjectStore, proxy: ForeignAnswers, tmp_path: Path
) -> None:
    opened.put("file", b"whole")
    for _ in range(5):
        assert fetch(proxied, "file", tmp_path / "back") == b"whole"
    assert proxy.connections == 1


def test_a_connection_that_the_server_has_closed_meanwhile_costs_nothing(
    opened: ObjectStore, s3_server: S3Server, reads: Reads, proxy: ForeignAnswers, tmp_path: Path
) -> None:
    opened.put("file", b"whole")
    proxy.idle = 0.05
    with contextlib.closing(open_store(opened.uri, endpoint_url=proxy.endpoint)) as store:
        assert fetch(store, "file", tmp_path / "back") == b"whole"
        proxy.hung_up.wait(60)
        assert fetch(store, "file", tmp_path / "back") == b"whole"


def test_a_server_that_is_busy_is_asked_again_by_the_sdk(
    opened: ObjectStore, proxied: ObjectStore, proxy: ForeignAnswers, reads: Reads, tmp_path: Path
) -> None:
    opened.put("file", b"whole")

    def busy(exchange: Exchange) -> None:
        if len(reads.requests) == 1:
            exchange.status, exchange.answer = 503, {}
            exchange.body = b"<Error><Code>SlowDown</Code></Error>"

    proxy.after = busy
    assert fetch(proxied, "file", tmp_path / "back") == b"whole"
    assert (len(reads.requests), reads.by_the_sdk()) == (2, 1)


def test_a_server_that_never_gives_the_range_is_left_to_the_sdk(
    opened: ObjectStore, proxied: ObjectStore, proxy: ForeignAnswers, reads: Reads, tmp_path: Path
) -> None:
    opened.put("file", b"whole")

    def elsewhere(exchange: Exchange) -> None:
        if "Boto3" not in exchange.headers.get("User-Agent", ""):
            exchange.status, exchange.body = 301, b""  # the bucket is in another region

    proxy.after = elsewhere
    for _ in range(REFUSALS + 2):
        assert fetch(proxied, "file", tmp_path / "back") == b"whole"
    assert len(reads.requests) - reads.by_the_sdk() == REFUSALS


def test_a_missing_file_and_a_wrong_key_are_told_as_the_sdk_tells_them(
    opened: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ObjectNotFound, match=r"cannot read s3://.*/gone: NoSuchKey"):
        fetch(opened, "gone", tmp_path / "back")
    opened.put("file", b"whole")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with contextlib.closing(open_store(opened.uri)) as store:
        with pytest.raises(StoreDenied, match=r"SignatureDoesNotMatch.*; check the access key"):
            fetch(store, "file", tmp_path / "back")


def test_a_session_token_is_sent_and_signed(
    s3_uri: str,
    proxy: ForeignAnswers,
    reads: Reads,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "from-a-role")

    def give(exchange: Exchange) -> None:  # the server below knows no such token
        exchange.status, exchange.body = 206, b"whole"
        exchange.answer = {"Content-Range": "bytes 0-4/5"}

    proxy.after = give
    with contextlib.closing(open_store(s3_uri, endpoint_url=proxy.endpoint)) as store:
        assert fetch(store, "file", tmp_path / "back") == b"whole"
    (headers,) = reads.requests
    assert headers["X-Amz-Security-Token"] == "from-a-role"
    assert "x-amz-security-token" in headers["Authorization"]
    assert reads.by_the_sdk() == 0


def test_a_server_behind_tls_is_read_with_the_authority_that_the_user_named(
    opened: ObjectStore, proxy: ForeignAnswers, reads: Reads, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    content = os.urandom(9_000_000)
    (tmp_path / "file").write_bytes(content)
    opened.put_file("file", tmp_path / "file")
    authority = TestAuthority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    proxy.socket = authority.server(tmp_path).wrap_socket(proxy.socket, server_side=True)
    endpoint = proxy.endpoint.replace("http:", "https:")
    with contextlib.closing(open_store(opened.uri, endpoint_url=endpoint)) as store:
        crc32 = zlib.crc32(content)
        store.get_file("file", tmp_path / "back", size=len(content), crc32=crc32)
    assert (len(reads.requests), reads.by_the_sdk()) == (3, 0)


def test_a_proxy_of_the_user_is_left_to_the_sdk(
    opened: ObjectStore, proxy: ForeignAnswers, reads: Reads, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    opened.put("file", b"whole")
    monkeypatch.setenv("http_proxy", proxy.endpoint)
    monkeypatch.setenv("no_proxy", "elsewhere")
    with contextlib.closing(open_store(opened.uri)) as store:
        assert fetch(store, "file", tmp_path / "back") == b"whole"
    assert reads.by_the_sdk() == len(reads.requests) == 1
