"""Losses, the incident that they form, and the budget it is charged to."""

from __future__ import annotations
