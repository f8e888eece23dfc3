"""Fixtures: a run's folder on the file store and on a real S3 server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench
from tests.support.s3_server import S3Server, running_server
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One server for the tests that leave it running."""
    with running_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3_uri(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> str:
    """A fresh prefix in a bucket, and the environment to reach it."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = s3_server.data / "bucket"
    bucket.mkdir(exist_ok=True)
    return f"s3://bucket/team/{abs(hash(request.node.nodeid)):x}"


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.servers)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """A folder and a bucket, made ready; the tests in `stores` have every kind."""
    if request.param == "file":
        store = open_store(f"file://{tmp_path}/store")
    else:
        store = open_store(request.getfixturevalue("s3_uri"))
    store.probe()
    with contextlib.closing(store):
        yield store


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A run's folder on the file store."""
    store = open_store(f"file://{tmp_path}/store")
    store.probe()
    return Bench(run=RunStore(store, "digits"), scratch=tmp_path / "scratch")


@pytest.fixture
def s3_bench(s3_uri: str, tmp_path: Path) -> Iterator[Bench]:
    """A run's folder on a real S3 server."""
    with contextlib.closing(open_store(s3_uri)) as store:
        yield Bench(run=RunStore(store, "digits"), scratch=tmp_path / "scratch")


@pytest.fixture
def any_bench(store: ObjectStore, tmp_path: Path) -> Bench:
    """A run's folder on every kind of store."""
    return Bench(run=RunStore(store, "digits"), scratch=tmp_path / "scratch")


@pytest.fixture
def folder(bench: Bench, tmp_path: Path) -> Path:
    """The run's folder as a directory, to do damage in."""
    return tmp_path / "store" / "digits"
