"""`trainrun run` of a TrainSweep, as operator, clerk and cluster in one; and `trainrun sweep`."""

from __future__ import annotations
