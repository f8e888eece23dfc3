"""What all static pages are made of: frame, style, lines. A page says what stands in it."""

from __future__ import annotations
