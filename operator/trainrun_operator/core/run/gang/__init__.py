"""Who takes which slot, and what a gang that is not whole waits for."""

from __future__ import annotations
