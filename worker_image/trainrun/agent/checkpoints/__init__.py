"""Checkpoint transfers between the processes and the store."""

from __future__ import annotations
