"""Exit codes of all commands.

Layer: cli.
"""

from __future__ import annotations

SUCCEEDED = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
