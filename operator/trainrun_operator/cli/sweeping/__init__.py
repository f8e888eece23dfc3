"""`trainrun run` of a TrainSweep: this machine is operator, clerk and cluster in one process."""

from __future__ import annotations
