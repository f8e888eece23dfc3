"""Which worker takes which slot, and what an incomplete gang waits for."""

from __future__ import annotations
