"""Object storage behind the S3 protocol: AWS and compatible servers.

Layer: implements `ObjectStore`; the only module that imports boto3. Invariants: every request has
timeouts and is retried a few times by the SDK, so a call ends within minutes even if the network
hangs; all data sent carry a CRC32 that the server checks.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore import exceptions as sdk
from botocore.config import Config
from urllib3.exceptions import HTTPError

from trainrun.checkpoint.selection import ObjectInfo
from trainrun.checkpoint.stores import ranges
from trainrun.checkpoint.stores.parts import (
    CONNECT_TIMEOUT,
    CONNECTIONS,
    PART,
    Part,
    Stream,
    abort_uploads,
    encode_crc32,
    request_range,
    required_field,
)
from trainrun.checkpoint.stores.ranges import DripDetector, fetch_file
from trainrun.checkpoint.stores.s3_errors import (
    MISPLACED,
    AlreadyThere,
    Raced,
    explain_answer,
    proxy_note,
)
from trainrun.checkpoint.stores.sending import Blocks, PartBuffers, send_large, without_expect
from trainrun.checkpoint.stores.signed_reads import SignedReads
from trainrun.checkpoint.stores.store import (
    Progress,
    Range,
    changed,
    changed_file,
    check_crc32,
    check_key,
    check_largest,
    other_size,
    probe_put_if_absent,
)
from trainrun.errors import (
    ObjectNotFound,
    StoreDenied,
    StoreMisconfigured,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

READ_TIMEOUT = 60.0
"""Seconds without a byte of the response: completing a large multipart upload can take as long."""
SDK_TRIES = 3
"""Tries per request, with the SDK's pauses between them (at most a few seconds)."""
CONFLICT_TRIES = 10
"""Tries of a conditional write that keeps conflicting with others."""
PLACING_TRIES = 5
"""Tries of a write that a server over a file system could not place; half a second at most. For
versitygw 1.x, a folder has the object's name, or a deletion has just removed the folder of it."""
DELETE_AT_ONCE = 1000
"""Keys per delete request: the protocol's limit."""
_PLAIN = re.compile(r"(?!.*--x-s3$)[a-zA-Z0-9._-]+")
"""Names of buckets; not of access points and directory buckets, which have addresses of their own
and other signatures."""
_NO_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.CredentialRetrievalError,
    sdk.TokenRetrievalError,
    sdk.ProfileNotFound,
)
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""Part of a TLS error that a retry does not cure, unlike a broken connection."""
_NETWORK = (
    sdk.ConnectionError,
    sdk.HTTPClientError,
    sdk.IncompleteReadError,
    sdk.ChecksumError,
    HTTPError,  # from a body that is read without the SDK
)


class S3Store:
    """An `ObjectStore` in a bucket."""

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        uri: str,
        endpoint_url: str | None = None,
        region: str | None = None,
        keys: Mapping[str, str] | None = None,
        largest: int | None = None,
    ) -> None:
        """Arguments are those of `open_store`."""
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self.uri = uri
        """The address as the user wrote it."""
        self._endpoint_url = endpoint_url
        self._region = region
        self._keys, self._largest = keys, largest
        self._proxy_note = proxy_note(endpoint_url or f"https://{bucket}.s3.amazonaws.com")
        self._lock = threading.Lock()
        self._limit = threading.BoundedSemaphore(CONNECTIONS)
        self._buffers = PartBuffers(self._limit)
        self._reads = threading.BoundedSemaphore(ranges.CONNECTIONS)
        self._pace = DripDetector()
        self._cached_client: Any = None
        self._cached_reader: SignedReads | None = None

    def put(self, key: str, data: bytes) -> None:
        """See ObjectStore.put."""
        with self._explained("write", key):
            self._put(key, memoryview(data))

    def put_file(
        self, key: str, path: Path, *, crc32: int | None = None, progress: Progress | None = None
    ) -> int:
        """See ObjectStore.put_file."""
        size = path.stat().st_size
        with self._explained("write", key), self._buffers.kept():
            if size > PART:  # smaller files are sent in one request
                return send_large(
                    self._client,
                    self._at(key),
                    path,
                    size=size,
                    crc32=crc32,
                    progress=progress,
                    buffers=self._buffers,
                )
            whole = Part(number=1, start=0, size=size)
            with path.open("rb", buffering=0) as source:
                with self._buffers.filled(source.fileno(), whole, path) as data:
                    found = zlib.crc32(data)
                    if crc32 not in (None, found):
                        raise changed_file(path)
                    self._put(key, data, crc32=found)
        if progress is not None:
            progress(size)
        return found

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """See ObjectStore.put_if_absent."""
        for attempt in range(CONFLICT_TRIES):
            try:
                with self._explained("write", key):
                    self._put(key, memoryview(data), IfNoneMatch="*")
                return True
            except AlreadyThere:
                # Possibly ours: the SDK repeats a request whose response was lost.
                with contextlib.suppress(ObjectNotFound):  # deleted in between: try again
                    return self.get(key) == data
            except Raced:
                time.sleep(random.uniform(0, 0.02 * 2 ** min(attempt, 6)))
        raise StoreUnavailable(f"cannot write {self._name(key)}: other writers keep overwriting it")

    def get(self, key: str) -> bytes:
        """See ObjectStore.get."""
        with self._explained("read", key):
            answer = self._client.get_object(**self._at(key))
            with contextlib.closing(answer["Body"]) as body:
                check_largest(self._name(key), answer["ContentLength"], self._largest)
                return bytes(body.read())

    def size(self, key: str) -> int | None:
        """See ObjectStore.size."""
        with contextlib.suppress(ObjectNotFound), self._explained("read", key):
            return int(self._client.head_object(**self._at(key))["ContentLength"])
        return None

    def get_file(
        self,
        key: str,
        path: Path,
        *,
        size: int,
        crc32: int | None,
        tag: str = "",
        ranges: Sequence[Range] = (),
    ) -> None:
        """See ObjectStore.get_file."""
        name = self._name(key)
        if size == 0:
            if there := len(self.get(key)):
                raise other_size(name, there, size)
            path.write_bytes(b"")
            return

        @contextlib.contextmanager
        def open_range(start: int, count: int) -> Iterator[Stream]:
            with self._explained("read", key):
                reads = self._reader
            whole = self._at(key)["Key"]
            if reads and (body := reads.begin(whole, start, count, size=size, tag=tag, name=name)):
                with contextlib.closing(body):
                    yield body
                return
            try:
                with self._explained("read", key):
                    with request_range(
                        self._client, self._at(key), start, count, size=size, tag=tag, name=name
                    ) as stream:
                        yield stream
            except AlreadyThere as error:  # 412 to If-Match
                raise changed(name) from error

        found = fetch_file(
            path, size, open_range, ranges, name=name, limit=self._reads, pace=self._pace
        )
        check_crc32(name, found, crc32)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """See ObjectStore.list."""
        with self._explained("list", prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix + prefix
            )
            found = [
                ObjectInfo(
                    key=item["Key"][len(self.prefix) :],
                    size=item["Size"],
                    modified=item["LastModified"].timestamp(),
                    tag=item.get("ETag", ""),
                )
                for page in pages
                for item in page.get("Contents", ())
            ]
        # Keys that end in a slash are the folders that some tools create.
        return sorted((item for item in found if item.key[-1:] != "/"), key=lambda item: item.key)

    def folders(self, within: str = "") -> tuple[str, ...]:
        """See BrowsableStore.folders."""
        with self._explained("list", within):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix + within, Delimiter="/"
            )
            found = [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", ())]
        return tuple(sorted(prefix[len(self.prefix + within) : -1] for prefix in found))

    def delete(self, keys: Iterable[str]) -> None:
        """See ObjectStore.delete."""
        names = [{"Key": self.prefix + check_key(key)} for key in keys]
        for start in range(0, len(names), DELETE_AT_ONCE):
            batch = {"Objects": names[start : start + DELETE_AT_ONCE], "Quiet": True}
            with self._explained("delete from", ""):
                answer = self._client.delete_objects(Bucket=self.bucket, Delete=batch)
            for error in answer.get("Errors", ())[:1]:
                what = f"cannot delete s3://{self.bucket}/{error.get('Key', '?')}"
                raise explain_answer(what, {"Error": error}, bucket=self.bucket)

    def abort_uploads(self, prefix: str, *, of: Callable[[str], bool]) -> None:
        """See ObjectStore.abort_uploads."""
        with self._explained("list unfinished uploads of", prefix):
            whole = self.prefix + prefix
            abort_uploads(self._client, self.bucket, whole, lambda key: of(key[len(self.prefix) :]))

    def close(self) -> None:
        """See ObjectStore.close."""
        with self._lock:
            if self._cached_client is not None:
                self._cached_client.close()
                self._cached_client = None
            if self._cached_reader is not None:
                self._cached_reader.close()
                self._cached_reader = None

    def probe(self) -> None:
        """See ObjectStore.probe."""
        probe_put_if_absent(
            self,
            otherwise="the server overwrote an existing object despite If-None-Match: * in "
            "PutObject, so a claim cannot be written exactly once. Use AWS S3, MinIO, versitygw or "
            "another server with conditional writes",
        )

    # ---------------------------------------------------------------- details

    @property
    def _client(self) -> Any:  # boto3 builds its client classes at run time: no type to name
        with self._lock:
            if self._cached_client is None:
                self._connect()
            return self._cached_client

    @property
    def _reader(self) -> SignedReads | None:
        """None: only the SDK can read here."""
        with self._lock:
            if self._cached_client is None:
                self._connect()
            return self._cached_reader

    def _connect(self) -> None:
        config = Config(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": SDK_TRIES},
            max_pool_connections=CONNECTIONS + ranges.CONNECTIONS,
            # Path style: not every compatible server supports bucket names as host names.
            # The CRC32 that we send protects the payload: also hashing it for the signature would
            # take longer than sending it.
            s3={"addressing_style": "path", "payload_signing_enabled": False},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            core = botocore.session.get_session()
            if self._keys is not None:
                names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
                core.set_credentials(*map(self._keys.get, names))
            session = boto3.session.Session(botocore_session=core)
            region = self._region or session.region_name or "us-east-1"
            client = session.client(
                "s3", endpoint_url=self._endpoint_url, region_name=region, config=config
            )
            client.meta.events.register("before-call.s3", without_expect)
            self._cached_client = client
            credentials = core.get_credentials()
            there = client.meta.endpoint_url
            if credentials is not None and _PLAIN.fullmatch(self.bucket) and not proxy_note(there):
                self._cached_reader = SignedReads(
                    self.bucket,
                    endpoint_url=there,
                    region=region,
                    credentials=credentials,
                    ca_bundle=core.get_config_variable("ca_bundle"),
                )
        except ValueError as error:
            raise StoreMisconfigured(f"{self.uri}: storage.endpointURL: {error}") from error

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": self.prefix + check_key(key)}

    def _name(self, key: str) -> str:
        return f"s3://{self.bucket}/{self.prefix}{key}".rstrip("/")

    def _put(
        self, key: str, data: memoryview, *, crc32: int | None = None, **conditions: str
    ) -> None:
        code = encode_crc32(zlib.crc32(data) if crc32 is None else crc32)
        for attempt in range(PLACING_TRIES):
            try:
                answer = self._client.put_object(
                    **self._at(key), Body=Blocks(data), ChecksumCRC32=code, **conditions
                )
                required_field(answer, "ETag", name=self._name(key))
                return
            except sdk.ClientError as error:
                refusal = error.response.get("Error", {}).get("Code")
                if refusal != MISPLACED or attempt == PLACING_TRIES - 1:
                    raise
            time.sleep(random.uniform(0, 0.02 * 2**attempt))

    @contextlib.contextmanager
    def _explained(self, verb: str, key: str) -> Iterator[None]:
        """Turn the SDK's exceptions from the block into StoreErrors with a remedy."""
        what = f"cannot {verb} {self._name(key)}{self._proxy_note}"
        try:
            yield
        except sdk.ClientError as error:
            raise explain_answer(what, error.response, bucket=self.bucket) from error
        except _NO_CREDENTIALS as error:
            raise StoreDenied(
                f"{what}: {error}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this "
                "machine or pod an identity"
            ) from error
        except _NETWORK as error:
            if isinstance(error, sdk.SSLError) and UNTRUSTED in str(error):
                raise StoreMisconfigured(
                    f"{what}: {error}; the worker must trust the server's certificate "
                    "(AWS_CA_BUNDLE names a file of CA certificates)"
                ) from error
            raise StoreUnavailable(
                f"{what}: {error}; check the network, storage.endpointURL and whether the server "
                "is running"
            ) from error
        except sdk.BotoCoreError as error:
            raise StoreMisconfigured(f"{what}: {error}") from error
