"""Checkpoints on their way to the store and back."""

from __future__ import annotations
