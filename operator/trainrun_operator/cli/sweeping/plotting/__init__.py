"""A sweep as one static page: `trainrun sweep plot`."""

from __future__ import annotations
