"""The TrainSweep: its spec and its status."""

from __future__ import annotations
