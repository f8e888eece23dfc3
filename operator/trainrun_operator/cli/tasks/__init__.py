"""`trainrun tasks`: what became of a program of tasks, read from its log."""

from __future__ import annotations
