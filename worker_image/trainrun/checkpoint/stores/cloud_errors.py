"""Errors of Google Cloud Storage and Azure, as StoreErrors with a remedy.

Layer: pure; `cloud.py` gives it the texts of the library's exceptions, whose classes tell less. The
codes are those of both services, and of Azurite and fake-gcs-server where they differ.
"""

from __future__ import annotations

import re

from trainrun.errors import (
    CheckpointDamaged,
    ObjectNotFound,
    StoreDenied,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
    TrainRunError,
)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]*)")
_DEBUG = "\n\nDebug source:"
"""Before what the library adds for its developers."""
_TIMES = re.compile(r" in [\d.]+[nµm]?s(, after [^-]*)?(?= +-)")
"""Differ each time, and a message that is repeated must not."""
_CAUSE = re.compile(r'(?:message|error): "([^"]+)"')
_NETWORK = "HTTP error"
_UNTRUSTED = "InvalidCertificate"
"""Part of a TLS error that a retry does not cure, unlike a broken connection."""
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "specified container does not exist")
_KEYS = {
    "gs": "GOOGLE_SERVICE_ACCOUNT_KEY",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
}
_ROLES = {
    "gs": "the role Storage Object User on bucket",
    "az": "the role Storage Blob Data Contributor on container",
}


def explain(what: str, text: str, *, scheme: str, bucket: str) -> TrainRunError:
    """The error for an exception of the library with this text: a StoreError, or CheckpointDamaged
    where the object ends before the range that was asked for.

    `what` names the failed request (`cannot write gs://bucket/key`).
    """
    summary = text.partition(_DEBUG)[0]
    status = int(found[1]) if (found := _STATUS.search(summary)) else 0
    code = found[1] if (found := _CODE.search(summary)) else ""
    if status:
        message = found[1] if (found := _MESSAGE.search(summary)) else ""
        answer = f"{what}: {code or status}: {message}".rstrip(":. ")
    else:
        answer = f"{what}: {' '.join(_TIMES.sub('', summary).split())}"
    if "token request" in summary or "instance metadata" in summary:
        return StoreDenied(
            f"{answer}; set {_KEYS[scheme]}, or give this machine or pod an identity"
        )
    if any(sign in summary for sign in _NO_BUCKET):
        return StoreMisconfigured(f"{answer}; create {bucket!r} or correct storage.uri")
    if status == 404:
        return ObjectNotFound(answer)
    if status == 416:
        return CheckpointDamaged(f"{answer}; it is shorter than it was when it was committed")
    if status == 507 or "QuotaExceeded" in code:
        return StoreFull(f"{answer}; make room in {bucket!r} or raise its limit")
    if status in (401, 403):
        return StoreDenied(
            f"{answer}; check {_KEYS[scheme]}, and whether they have {_ROLES[scheme]} {bucket!r}"
        )
    if status in (408, 409, 429) or status >= 500:
        return StoreUnavailable(answer)
    if not status and _NETWORK in summary:
        cause = found[1] if (found := _CAUSE.search(text)) else "no answer"
        if _UNTRUSTED in text:
            return StoreMisconfigured(
                f"{what}: the server's certificate is not trusted; SSL_CERT_FILE must name a file "
                "with its CA certificates"
            )
        return StoreUnavailable(
            f"{what}: {cause}; check the network, storage.endpointURL and whether the server is "
            "running"
        )
    if not status:
        return StoreMisconfigured(f"{answer}; check {_KEYS[scheme]} and storage.endpointURL")
    return StoreMisconfigured(answer)
