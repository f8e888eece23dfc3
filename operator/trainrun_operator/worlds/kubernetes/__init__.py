"""The Kubernetes world: workers are pods, the status is the TrainRun's, facts come from watches."""

from __future__ import annotations
