"""Kubernetes as any client sees it: calls, watches, caches, leases. Knows no TrainRun."""

from __future__ import annotations
