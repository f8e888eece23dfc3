"""Checkpoints on their way from the processes to the store, and back."""

from __future__ import annotations
