"""Ranges of objects from an S3 server for little CPU: signed requests over connections kept open.

Layer: sockets; botocore signs, `s3.py` decides. The SDK needs five times the CPU for a request
(1.5 instead of 0.3 ms), more than all else about a small file. Invariants: nothing but the range
that was requested is taken; whatever else happens before the first byte is left to the SDK, which
tries again, renews or explains.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.httpsession import get_cert_path

from trainrun.checkpoint.stores.parts import CONNECT_TIMEOUT, SILENCE
from trainrun.errors import StoreUnavailable

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse


REFUSALS = 8
"""Answers in a row without the range after which only the SDK is asked: it follows a bucket into
another region, which costs a connection for each request that asks in vain."""


class SignedReads:
    """Connections to one bucket. Thread-safe."""

    def __init__(
        self, bucket: str, *, endpoint_url: str, region: str, credentials: Any, ca_bundle: Any
    ) -> None:
        """`credentials`: the SDK's, which renew themselves; `ca_bundle`: a path, None: the SDK's
        own certificates."""
        self._address = urlsplit(f"{endpoint_url.rstrip('/')}/{bucket}/")
        self._region = region
        self._credentials = credentials
        self._ca_bundle = True if ca_bundle is None else ca_bundle
        self._context: ssl.SSLContext | None = None
        self._idle: list[HTTPConnection] = []
        self._refused = 0
        """Answers in a row that brought no range."""

    def begin(
        self, key: str, start: int, count: int, *, size: int, tag: str, name: str
    ) -> SignedBody | None:
        """Request `count` bytes from `start` of an object of `size` bytes; None: ask the SDK.

        `tag`: the version (empty: any); `name`: for messages.
        """
        if self._refused >= REFUSALS:
            return None
        bounds = f"{start}-{start + count - 1}"
        headers = {"Range": f"bytes={bounds}"} | ({"If-Match": tag} if tag else {})
        with contextlib.suppress(Exception):  # the SDK runs into the same, and explains it
            target = self._address.path + quote(key, safe="/~")
            url = f"{self._address.scheme}://{self._address.netloc}{target}"
            request = AWSRequest("GET", url, headers=headers)
            keys = self._credentials.get_frozen_credentials()
            S3SigV4Auth(keys, "s3", self._region).add_auth(request)
            connection = self._idle.pop() if self._idle else self._connect()
            try:
                connection.request("GET", target, headers=dict(request.headers.items()))
                answer = connection.getresponse()
                if (
                    answer.status == 206
                    and answer.length == count
                    and answer.getheader("Content-Range") == f"bytes {bounds}/{size}"
                    and (not tag or answer.getheader("ETag", tag) == tag)
                ):
                    self._refused = 0
                    return SignedBody(answer, connection, self._idle, name)
                connection.close()
                self._refused += answer.status < 402  # not what the SDK would be told, too
            except BaseException:
                connection.close()
                raise
        return None

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def _connect(self) -> HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT)
        if self._address.scheme == "https":
            if self._context is None:
                path = get_cert_path(self._ca_bundle)
                self._context = ssl.create_default_context(cafile=path)
            connection = http.client.HTTPSConnection(
                host, port, timeout=CONNECT_TIMEOUT, context=self._context
            )
        connection.connect()
        connection.sock.settimeout(SILENCE)
        return connection


class SignedBody:
    """A `Stream` of one range."""

    def __init__(
        self,
        answer: HTTPResponse,
        connection: HTTPConnection,
        idle: list[HTTPConnection],
        name: str,
    ) -> None:
        self._name = name
        self._answer = answer
        self._connection = connection
        self._idle = idle
        self._left = answer.length or 0

    def read_into(self, buffer: memoryview, /) -> int:
        """See Stream.read_into. Raises StoreUnavailable where the connection fails."""
        try:
            # The answer's own `readinto` waits until the buffer is full: that would hide a drip.
            count = self._answer.fp.readinto1(buffer[: self._left])
        except OSError as error:
            raise StoreUnavailable(
                f"cannot read {self._name}: {error}; check the network and whether the server is "
                "running"
            ) from error
        self._left -= count
        return count

    def close(self) -> None:
        """Keep the connection for another request if all bytes were read."""
        self._answer.close()
        if self._left or self._answer.will_close:
            self._connection.close()
        else:
            self._idle.append(self._connection)
