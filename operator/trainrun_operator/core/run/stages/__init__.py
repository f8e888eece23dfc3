"""What is decided before an attempt, while it runs and after the verdict."""

from __future__ import annotations
