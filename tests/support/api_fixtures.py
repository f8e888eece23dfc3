"""A real API server for the session, a namespace and a connection for each test; a fake one.

Loaded for all tests, so it imports what it needs late.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.kube.api_server import ApiServer
    from tests.kube.fake_api import FakeApi
    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """For the tests that leave it running."""
    with _running(tmp_path_factory) as server:
        yield server


@pytest.fixture
def own_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One that the test may break."""
    with _running(tmp_path_factory) as server:
        yield server


@contextlib.contextmanager
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    from tests.kube.api_server import ApiServer

    server = ApiServer(directory=tmp_path_factory.mktemp("apiserver"))
    try:
        server.prepare()
        server.start_etcd()
        server.start()
        yield server
    finally:
        server.close()


@pytest_asyncio.fixture
async def api(
    apiserver: ApiServer, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubeApi]:
    """As the administrator."""
    from trainrun_operator.kube.api import KubeApi

    path = apiserver.kubeconfig(tmp_path_factory.mktemp("kube") / "config")
    monkeypatch.setenv("KUBECONFIG", str(path))
    connected = await KubeApi.connect()
    yield connected
    await connected.close()


@pytest_asyncio.fixture
async def namespace(api: KubeApi) -> str:
    """A fresh one."""
    name = f"test-{secrets.token_hex(4)}"
    await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def trainruns(apiserver: ApiServer, namespace: str) -> TrainRuns:
    """Those of the fresh namespace; the CRD is installed."""
    from tests.support.trainruns import TrainRuns

    runs = TrainRuns(apiserver, namespace)
    runs.install()
    return runs


@pytest_asyncio.fixture
async def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    """An API server that does what the test says; KUBECONFIG leads to it."""
    from tests.kube.fake_api import FakeApi

    fake = FakeApi()
    await fake.start()
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig(tmp_path / "fake-config")))
    yield fake
    await fake.stop()
