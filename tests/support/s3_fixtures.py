"""A real S3 server of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.s3_server import S3Server


@pytest.fixture
def own_s3(tmp_path: Path) -> Iterator[S3Server]:
    """One that the test may stop, with the empty bucket `bucket`."""
    from tests.support.s3_server import running_server

    with running_server(tmp_path / "s3") as server:
        server.make_bucket("bucket")
        yield server
