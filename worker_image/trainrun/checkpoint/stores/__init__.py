"""Folders and buckets, and a run's place in them."""

from __future__ import annotations
