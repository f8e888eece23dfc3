"""Helpers for the machine, files and texts, shared by scripts, tasks and agents."""

from __future__ import annotations
