"""Pure rules over a listing of the store."""

from __future__ import annotations
