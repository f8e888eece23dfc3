"""The exchange with the training processes."""

from __future__ import annotations
