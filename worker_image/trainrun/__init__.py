"""What user code imports: report, get_checkpoint, get_context and friends."""

from __future__ import annotations
