"""Which trials of a sweep should run now: one pure function. Knows nothing of how a run is led."""

from __future__ import annotations
