"""The TrainSweep: its spec and its status. It gets its CRD once the operator leads sweeps."""

from __future__ import annotations
