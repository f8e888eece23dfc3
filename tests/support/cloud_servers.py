"""Local servers that speak the protocols of Azure and of Google Cloud Storage.

`make test-tools` installs them; a machine without them skips these tests loudly.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import secrets
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

import pytest

from tests.support.s3_server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainrun"
AZURITE = CACHE / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
FAKE_GCS = CACHE / "bin" / "fake-gcs-server"
ACCOUNT = "devstoreaccount1"
LOST_ANSWER = "lost-answer"
"""Part of the keys of Google's objects whose first write is done, but not answered."""


@contextlib.contextmanager
def running_azurite(directory: Path) -> Iterator[dict[str, str]]:
    """Azurite with the container `bucket`; gives what a client process needs to know."""
    node = shutil.which("node")
    if node is None or not AZURITE.is_file():
        pytest.skip(f"NO AZURE SERVER: node or {AZURITE} is missing; run `make test-tools`")
    port, key = free_port(), base64.b64encode(secrets.token_bytes(64)).decode()
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    command = [node, str(AZURITE), "--blobPort", str(port), *options]
    with _running(command, directory, port, AZURITE_ACCOUNTS=f"{ACCOUNT}:{key}"):
        _make_container(endpoint, key, "bucket")
        yield {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": key,
            "AZURE_STORAGE_ENDPOINT": endpoint,
            "NO_PROXY": "*",
        }


@contextlib.contextmanager
def running_gcs(directory: Path) -> Iterator[dict[str, str]]:
    """fake-gcs-server behind `XmlWrites`, with the bucket `bucket`; gives what a client needs."""
    if not FAKE_GCS.is_file():
        pytest.skip(f"NO SERVER FOR GCS: {FAKE_GCS} is missing; run `make test-tools`")
    port = free_port()
    where = ["-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    command = [str(FAKE_GCS), "-backend", "memory", "-scheme", "http", *where]
    with _running([*command, "-log-level", "error"], directory, port):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as line:
            line.request("POST", "/storage/v1/b", json.dumps({"name": "bucket"}))
            assert line.getresponse().status == 200
        with ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(port)) as front:
            front.daemon_threads = True
            threading.Thread(target=front.serve_forever, daemon=True).start()
            key = {
                "gcs_base_url": f"http://127.0.0.1:{front.server_port}",
                "disable_oauth": True,
                "client_email": "",
                "private_key": "",
                "private_key_id": "",
            }
            yield {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key), "NO_PROXY": "*"}
            front.shutdown()


@contextlib.contextmanager
def _running(command: list[str], directory: Path, port: int, **more: str) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), **more}
    log = directory / "log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{command}: {log.read_text()}")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def _make_container(endpoint: str, key: str, name: str) -> None:
    date, version = formatdate(usegmt=True), "2021-08-06"
    signed = (
        f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:{version}\n"
        f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    )
    digest = hmac.new(base64.b64decode(key), signed.encode(), hashlib.sha256).digest()
    request = urllib.request.Request(
        f"{endpoint}/{name}?restype=container",
        method="PUT",
        data=b"",
        headers={
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            "Content-Type": "",
        },
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as answer:
        assert answer.status == 201


def _handler_for(port: int) -> type[BaseHTTPRequestHandler]:
    """A class that knows the server's port, the uploads that are under way, and lost answers."""
    return type("Handler", (XmlWrites,), {"port": port, "uploads": {}, "lost": set()})


class XmlWrites(BaseHTTPRequestHandler):
    """Makes writes of Google's XML API, which fake-gcs-server lacks, writes of its JSON API.

    All else it hands on as it is. So the server decides what is absent, and shows one object for
    the parts of an upload.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    port: int
    uploads: dict[str, dict[int, bytes]]
    lost: set[str]

    def setup(self) -> None:
        super().setup()
        self.line = http.client.HTTPConnection("127.0.0.1", self.port)

    def finish(self) -> None:
        self.line.close()
        super().finish()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        body = self._body()
        at = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(at.query, True).items()}
        upload = asked.get("uploadId", "")
        match self.command:
            case "POST" if "uploads" in asked:
                upload = secrets.token_hex(8)
                self.uploads[upload] = {}
                self._send(
                    200,
                    f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId>"
                    "</InitiateMultipartUploadResult>",
                )
            case "PUT" if "partNumber" in asked:
                self.uploads[upload][int(asked["partNumber"])] = body
                self._send(200, "", etag=f'"{asked["partNumber"]}"')
            case "POST" if upload:
                parts = self.uploads.pop(upload)
                self._insert(at.path, b"".join(parts[number] for number in sorted(parts)))
            case "DELETE" if upload:
                self.uploads.pop(upload, None)
                self._send(204, "")
            case "PUT":
                self._insert(at.path, body)
            case _:
                self._hand_on(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _insert(self, path: str, body: bytes) -> None:
        bucket, _, key = path[1:].partition("/")
        query = {"uploadType": "media", "name": unquote(key)}
        if expected := self.headers.get("x-goog-if-generation-match"):
            query["ifGenerationMatch"] = expected
        self.line.request(
            "POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query, quote_via=quote)}", body
        )
        answer = self.line.getresponse()
        told = answer.read()
        if LOST_ANSWER in key and key not in self.lost:
            self.lost.add(key)
            self.close_connection = True
        elif answer.status == 404:
            self._send(404, "<Error><Code>NoSuchBucket</Code></Error>")
        elif answer.status != 200:
            self._send(answer.status, told.decode())
        else:
            etag = json.loads(told)["etag"]
            kind = "CompleteMultipartUploadResult"
            self._send(200, f"<{kind}><ETag>{etag}</ETag></{kind}>", etag=etag)

    def _hand_on(self, body: bytes) -> None:
        headers = {
            name: self.headers[name] for name in ("Range", "If-Match") if name in self.headers
        }
        self.line.request(self.command, self.path, body or None, headers)
        answer = self.line.getresponse()
        told = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def _send(self, status: int, text: str, *, etag: str = "") -> None:
        self.send_response(status)
        if etag:
            self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())
