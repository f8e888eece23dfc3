"""Runs in the clerk of a sweep: samplers by libraries, and what other tools read of a sweep."""

from __future__ import annotations
