"""The exchange with the operator."""

from __future__ import annotations
