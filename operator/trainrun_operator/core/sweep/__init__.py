"""Decides which trials of a sweep should run now: one pure function that runs nothing."""

from __future__ import annotations
