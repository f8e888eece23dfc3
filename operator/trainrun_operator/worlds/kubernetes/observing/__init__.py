"""From pods, nodes and leases to the facts that the core decides by."""

from __future__ import annotations
