"""From an address to the store behind it.

Layer: checkpoint/stores, above the implementations. No I/O.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from trainrun.checkpoint.stores.file import FileStore
from trainrun.errors import StoreMisconfigured

if TYPE_CHECKING:
    from trainrun.checkpoint.stores.store import ObjectStore


def open_store(
    uri: str, *, endpoint_url: str | None = None, region: str | None = None
) -> ObjectStore:
    """Return the store for `file:///absolute/path` or `s3://bucket/prefix`, without any I/O.

    `endpoint_url` and `region` matter to s3 only; absent, boto3's usual sources decide.
    Raises StoreMisconfigured for an address of another form.
    """
    parts = urlsplit(uri)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise StoreMisconfigured(f"{uri}: a file URI is file:///absolute/path (three slashes)")
        return FileStore(Path(unquote(parts.path)), uri=uri.rstrip("/"))
    if parts.scheme == "s3":
        if not parts.netloc:
            raise StoreMisconfigured(f"{uri}: the bucket is missing; write s3://bucket/prefix")
        # Here, not above: boto3 takes 0.1 s to load and a folder needs none of it.
        from trainrun.checkpoint.stores.s3 import S3Store  # noqa: PLC0415

        prefix = uri.split("://", 1)[1].partition("/")[2].strip("/")
        return S3Store(
            parts.netloc, prefix, uri=uri.rstrip("/"), endpoint_url=endpoint_url, region=region
        )
    raise StoreMisconfigured(
        f"{uri}: only file:///absolute/path and s3://bucket/prefix are supported"
    )
