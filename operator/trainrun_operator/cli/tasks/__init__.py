"""`trainrun tasks`: shows a program of tasks from its log, and acts on it."""

from __future__ import annotations
