"""What runs the core: reconciler, agent server and events."""

from __future__ import annotations
