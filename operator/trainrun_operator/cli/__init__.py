"""The `trainrun` command."""

from __future__ import annotations
