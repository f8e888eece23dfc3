"""For all lives."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A life tells what it has to tell by its seed: nobody reads its log."""
    monkeypatch.setattr(logging.getLogger("trainrun.tasks"), "disabled", True)
