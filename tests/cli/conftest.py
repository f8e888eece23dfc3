from __future__ import annotations

from tests.worlds.local.conftest import runs

__all__ = ["runs"]
