"""An operator stand-in and agents that end with the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import Workers
from tests.support.operator_stand_in import OperatorStandIn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def operator() -> Iterator[OperatorStandIn]:
    with OperatorStandIn() as stand_in:
        yield stand_in


@pytest.fixture
def workers(tmp_path: Path, operator: OperatorStandIn) -> Iterator[Workers]:
    started = Workers(tmp_path, operator)
    yield started
    started.close()
