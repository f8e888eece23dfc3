"""Every decision about a TrainRun."""

from __future__ import annotations
