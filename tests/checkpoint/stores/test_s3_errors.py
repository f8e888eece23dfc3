"""What each refusal of an S3 server means to a user."""

from __future__ import annotations

import pytest

from trainrun.checkpoint.stores.s3_errors import AlreadyThere, Raced, explain, proxy_note
from trainrun.errors import (
    ObjectNotFound,
    PutIfAbsentUnsupported,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)


@pytest.mark.parametrize(
    ("code", "status", "kind", "remedy"),
    [
        (
            "AccessDenied",
            403,
            StoreDenied,
            "need GetObject, PutObject, DeleteObject and ListBucket",
        ),
        ("", 403, StoreDenied, "on bucket 'bkt'"),
        ("ExpiredToken", 400, StoreDenied, "check the access key, its secret and the endpoint"),
        ("RequestTimeTooSkewed", 403, StoreDenied, "this machine's clock is wrong"),
        ("NoSuchBucket", 404, StoreMisconfigured, "Create bucket 'bkt' or correct storage.uri"),
        (
            "PermanentRedirect",
            301,
            StoreMisconfigured,
            "set storage.region to that of bucket 'bkt'",
        ),
        ("AuthorizationHeaderMalformed", 400, StoreMisconfigured, "set storage.region"),
        ("NotImplemented", 501, PutIfAbsentUnsupported, "If-None-Match"),
        ("ObjectParentIsFile", 409, StoreMisconfigured, "both a key and keys below it"),
        ("BadDigest", 400, StoreUnavailable, "corrupted in transit"),
        ("SlowDown", 503, StoreUnavailable, "SlowDown"),
        ("", 502, StoreUnavailable, "502"),
        ("TooManyRequests", 429, StoreUnavailable, "TooManyRequests"),
        ("NoSuchKey", 404, ObjectNotFound, "NoSuchKey"),
        ("PreconditionFailed", 412, AlreadyThere, "cannot write"),
        ("ConditionalRequestConflict", 409, Raced, "cannot write"),
        ("ConcurrentModification", 409, Raced, "ConcurrentModification: text"),
        ("InvalidArgument", 400, StoreMisconfigured, "InvalidArgument: text"),
    ],
)
def test_a_refusal_becomes_an_error_with_a_remedy(
    code: str, status: int, kind: type[StoreError], remedy: str
) -> None:
    error = explain("cannot write s3://bkt/a", code=code, status=status, text="text", bucket="bkt")
    assert type(error) is kind
    assert str(error).startswith("cannot write s3://bkt/a")
    assert remedy in str(error)


def test_a_proxy_on_the_way_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the proxy answered read as the store's own refusal."""
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy.corp:3128")
    told = " through the proxy proxy.corp:3128 (NO_PROXY lists hosts to reach directly)"
    assert proxy_note("https://bkt.s3.amazonaws.com") == told
    assert proxy_note("http://minio.storage:9000") == ""
    monkeypatch.setenv("no_proxy", ".amazonaws.com")
    assert proxy_note("https://bkt.s3.amazonaws.com") == ""
