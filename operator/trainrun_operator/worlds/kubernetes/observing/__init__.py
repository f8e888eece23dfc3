"""Facts about workers, derived from pods, nodes and Leases."""

from __future__ import annotations
