"""The operator in a cluster: its process, its parts, and what makes it reachable."""

from __future__ import annotations
