"""The pure core: facts in, one decision out. No I/O, clock, random numbers or logging."""

from __future__ import annotations
