"""Fixtures: the real S3 server, directly and through what a test puts before it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

import pytest

from trainrun.checkpoint.run_store import open_store
from trainrun.checkpoint.stores.store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator


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
