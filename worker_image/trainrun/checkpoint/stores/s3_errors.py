"""Error codes of S3 servers, as StoreErrors with a remedy.

Layer: pure, except that it reads the proxy variables; `s3.py` maps the SDK's exceptions to these.
The codes are those of AWS, and of versitygw and MinIO where they differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from trainrun.errors import (
    ObjectNotFound,
    PutIfAbsentUnsupported,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class AlreadyThere(StoreError):
    """412: a conditional write found an object, possibly the one that we just wrote."""


class Raced(StoreUnavailable):
    """409: a conditional write conflicted with another one; the outcome is open, try again."""


_RACED = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_BAD_KEYS = frozenset(
    {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "TokenRefreshRequired",
        "XAdminUserNotFound",
    }
)
_CLOCK = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_REGION = frozenset(
    {
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "PermanentRedirect",
        "301",
    }
)
_CORRUPTED = frozenset({"BadDigest", "XAmzContentChecksumMismatch", "InvalidDigest"})
_LATER = frozenset({"SlowDown", "RequestTimeout", "Throttling", "TooManyRequests", "InternalError"})
_UNSUPPORTED = frozenset({"NotImplemented", "501"})
MISPLACED = "ExistingObjectIsDirectory"
"""Code of servers over a file system: the object cannot be placed, permanently or for a moment."""
_PATH = frozenset({"ObjectParentIsFile", MISPLACED, "DirectoryNotEmpty"})


def proxy_note(endpoint: str) -> str:
    """The proxy that the SDK uses for this address, for messages; it may answer for the store."""
    there = urlsplit(endpoint)
    proxy = getproxies().get(there.scheme, "")
    if not proxy or proxy_bypass(there.netloc):
        return ""
    address = urlsplit(proxy if "//" in proxy else f"//{proxy}").netloc.rpartition("@")[2]
    return f" through the proxy {address} (NO_PROXY lists hosts to reach directly)"


def explain_answer(what: str, answer: Mapping[str, Any], *, bucket: str) -> StoreError:
    """The error for an answer, as the SDK has parsed it; see `explain`."""
    details = answer.get("Error", {})
    return explain(
        what,
        code=str(details.get("Code", "")),
        status=int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)),
        text=str(details.get("Message", "")),
        bucket=bucket,
    )


def explain(what: str, *, code: str, status: int, text: str, bucket: str) -> StoreError:
    """The error for a refusal with this code and HTTP status.

    `what` names the failed request (`cannot write s3://bucket/key`), `text` is the server's
    message.
    """
    if status == 412:
        return AlreadyThere(what)
    if code in _RACED:
        return Raced(what)
    answer = f"{what}: {code or status}: {text}".rstrip(": ")
    if code in _BAD_KEYS:
        return StoreDenied(f"{answer}; check the access key, its secret and the endpoint")
    if code in _CLOCK:
        return StoreDenied(f"{answer}; this machine's clock is wrong")
    if code == "NoSuchBucket":
        return StoreMisconfigured(f"{answer} Create bucket {bucket!r} or correct storage.uri")
    if code in _REGION or status in (301, 307):
        return StoreMisconfigured(f"{answer}; set storage.region to that of bucket {bucket!r}")
    if code in _UNSUPPORTED or status == 501:
        return PutIfAbsentUnsupported(
            f"{answer}; the server lacks a required feature (such as If-None-Match)"
        )
    if code in _PATH:
        return StoreMisconfigured(f"{answer} This server cannot hold both a key and keys below it")
    if code in _CORRUPTED:
        return StoreUnavailable(f"{answer}; the data were corrupted in transit")
    if code in _LATER or status >= 500 or status == 429:
        return StoreUnavailable(answer)
    if code in ("NoSuchKey", "404") or status == 404:
        return ObjectNotFound(answer)
    if code == "AccessDenied" or status in (401, 403):
        return StoreDenied(
            f"{answer}; the credentials need GetObject, PutObject, DeleteObject and ListBucket "
            f"on bucket {bucket!r}"
        )
    if status == 409:
        return Raced(answer)  # servers use different codes for it
    return StoreMisconfigured(answer)
