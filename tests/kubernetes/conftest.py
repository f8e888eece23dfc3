"""A real API server for the session, a namespace and a connection for each test; a fake one."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.fake_api import FakeApi
from trainrun_operator.worlds.kubernetes.api import KubeApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """For the tests that leave it running."""
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


@pytest_asyncio.fixture
async def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    """An API server that does what the test says; KUBECONFIG leads to it."""
    fake = FakeApi()
    await fake.start()
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig(tmp_path / "fake-config")))
    yield fake
    await fake.stop()
