"""The control plane of TrainRun: resources, decisions, worlds and the command line."""

from __future__ import annotations
