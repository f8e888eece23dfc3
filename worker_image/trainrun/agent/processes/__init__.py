"""Training processes: starts, watches and ends them."""

from __future__ import annotations
