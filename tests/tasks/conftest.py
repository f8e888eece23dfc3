"""What tests of tasks share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def no_program() -> Iterator[None]:
    """Launchers import what a task needs, instead of pytest, which is the program here."""
    with pytest.MonkeyPatch.context() as patch:
        main = sys.modules["__main__"]
        patch.setattr(main, "__spec__", None)
        patch.setattr(main, "__file__", None, raising=False)  # xdist has none
        yield
