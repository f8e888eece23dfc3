"""Training processes: starting, watching, ending them."""

from __future__ import annotations
