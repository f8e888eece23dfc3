"""Fixtures: every kind of store; the real S3 server, directly and through what a test puts before
it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import pytest

from tests.support.cloud_servers import running_azurite, running_gcs
from trainrun.checkpoint.run_store import open_store
from trainrun.checkpoint.stores.store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Proxy(Protocol):
    """Stands before the server; each file of tests has a fixture `proxy` of its own kind."""

    @property
    def endpoint(self) -> str:
        """Where it listens."""


@pytest.fixture
def opened(s3_uri: str) -> Iterator[ObjectStore]:
    """The real server without anything in between."""
    with contextlib.closing(open_store(s3_uri)) as store:
        yield store


@pytest.fixture
def proxied(proxy: Proxy, s3_uri: str) -> Iterator[ObjectStore]:
    """The real server through the proxy."""
    with contextlib.closing(open_store(s3_uri, endpoint_url=proxy.endpoint)) as store:
        yield store


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One server for all tests: the environment to reach it."""
    with running_azurite(tmp_path_factory.mktemp("azurite")) as environment:
        yield environment


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """One server for all tests: the environment to reach it."""
    with running_gcs(tmp_path_factory.mktemp("gcs")) as environment:
        yield environment


SERVERS = {"gs": "gcs", "az": "azurite"}
"""The fixture of the server, by the scheme of its addresses."""


@pytest.fixture(params=[*SERVERS])
def cloud_uri(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh prefix in a bucket, and the environment to reach it."""
    for name, value in request.getfixturevalue(SERVERS[request.param]).items():
        monkeypatch.setenv(name, value)
    return f"{request.param}://bucket/team/{abs(hash(request.node.nodeid)):x}"


@pytest.fixture(
    params=["file", *(pytest.param(s, marks=pytest.mark.servers) for s in ("s3", *SERVERS))]
)
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectStore]:
    """Every kind of store, made ready."""
    uri = f"file://{tmp_path}/store"
    if request.param == "s3":
        uri = request.getfixturevalue("s3_uri")
    elif request.param in SERVERS:
        for name, value in request.getfixturevalue(SERVERS[request.param]).items():
            monkeypatch.setenv(name, value)
        uri = f"{request.param}://bucket/team/{abs(hash(request.node.nodeid)):x}"
    store = open_store(uri)
    store.probe()
    with contextlib.closing(store):
        yield store
