"""The TrainRun: its spec, its status and the resource as a whole."""

from __future__ import annotations
