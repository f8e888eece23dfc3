"""The local world: workers are process groups on this machine, nodes are folders."""

from __future__ import annotations
