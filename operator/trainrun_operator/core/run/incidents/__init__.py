"""Losses, the incident they make up, and the budget it is charged to."""

from __future__ import annotations
