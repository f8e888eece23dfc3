"""The exchange with the training processes, and the bookkeeping of their progress."""

from __future__ import annotations
