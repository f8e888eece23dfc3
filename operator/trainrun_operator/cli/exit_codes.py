"""Exit codes of all commands.

Layer: cli.
"""

from __future__ import annotations

SUCCEEDED = 0
FAILED = 1
BAD_INPUT = 2
FAULT_NEVER_STRUCK = 3
"""The run succeeded, but a `--fault` never struck."""
NEVER_MET = 3
"""The run succeeded, but its ranks never met: each may have trained alone."""
NO = 3
"""`trainrun checkpoints --can-resume`, `trainrun sweep can-restore`: no; `trainrun sweep best`:
there is none."""
NOT_REHEARSED = 3
"""`trainrun drill`: nothing was found, but not everything was rehearsed."""
FOUND = 4
"""`trainrun drill`: something would go wrong; `trainrun tasks verify`: a result cannot be used."""
INTERRUPTED = 130
