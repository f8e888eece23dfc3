"""A real S3 server (versitygw) on a loopback port, for tests.

`make test` builds it; a machine without the binary and without Go skips these tests loudly.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from testbed.versitygw import answers, arguments, client_environment, root_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS = Path(__file__).parent.parent / "tools"
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"


def versitygw() -> Path:
    """The server's binary; built here when only Go is there, a loud skip when neither is."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    binary = cache / "trainrun" / "bin" / "versitygw"
    if binary.is_file():
        return binary
    if shutil.which("go") is None:
        pytest.skip(
            f"NO REAL S3 SERVER: neither {binary} nor Go is there; install Go and run `make test`"
        )
    binary.parent.mkdir(parents=True, exist_ok=True)
    partial = binary.with_name(f"versitygw.{os.getpid()}")
    environment = {**os.environ, "CGO_ENABLED": "0"}
    subprocess.run(["go", "build", "-o", partial, PACKAGE], cwd=TOOLS, env=environment, check=True)
    partial.replace(binary)
    return binary


@dataclass(kw_only=True)
class S3Server:
    """One server process with its data; `stop` and `start` may be repeated, the data stays."""

    directory: Path
    port: int
    access_key: str = "tester"
    secret_key: str = field(default_factory=lambda: secrets.token_hex(16))
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Buckets are the folders in here, objects their files."""
        return self.directory / "data"

    def start(self) -> None:
        for name in ("data", "iam"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        environment = {
            "PATH": os.environ["PATH"],
            **root_keys(self.access_key, self.secret_key),
        }
        log_accesses = ("--access-log", self.directory / "access.log")
        options = arguments(f"127.0.0.1:{self.port}", self.directory, *log_accesses)
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [versitygw(), *options],
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + 20
        while not answers(self.endpoint):
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"versitygw: {(self.directory / 'log').read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def make_bucket(self, name: str) -> str:
        """Create a bucket; return its name."""
        (self.data / name).mkdir()
        return name

    def environment(self) -> dict[str, str]:
        """What a client process needs to know."""
        return client_environment(self.endpoint, self.access_key, self.secret_key)

    def requests(self) -> list[tuple[str, str]]:
        """Action and path of every request so far: `("GetObject", "/bucket/key")`."""
        log = (self.directory / "access.log").read_text()
        return [
            (kind, unquote(path)) for kind, path in re.findall(r" s3_(\w+) .*? (/\S+) \d+ ", log)
        ]


def free_port() -> int:
    """A loopback port that nobody has right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def xattr_directory(directory: Path) -> Path:
    """`directory`, or a skip when its file system lacks the extended attributes versitygw needs."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        os.setxattr(directory, "user.trainrun", b"1")
    except OSError as error:
        pytest.skip(f"NO REAL S3 SERVER: {directory} has no extended attributes ({error})")
    return directory


@contextlib.contextmanager
def running_server(directory: Path) -> Iterator[S3Server]:
    """Start a server whose data live below `directory`."""
    versitygw()
    server = S3Server(directory=xattr_directory(directory), port=free_port())
    server.start()
    try:
        yield server
    finally:
        server.stop()
