"""The worlds a run can live in: what observes workers and carries out plans."""

from __future__ import annotations
