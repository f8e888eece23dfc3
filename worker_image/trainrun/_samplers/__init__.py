"""Samplers built on libraries, for a sweep's clerk, and the export of a sweep for other tools."""

from __future__ import annotations
