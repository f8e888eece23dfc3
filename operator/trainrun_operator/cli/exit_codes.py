"""Exit codes of all commands.

Layer: cli.
"""

from __future__ import annotations

SUCCEEDED = 0
FAILED = 1
BAD_INPUT = 2
FAULT_NEVER_STRUCK = 3
"""The run succeeded, but not under what `--fault` was to show."""
NEVER_MET = 3
"""The run succeeded, but its processes may each have trained alone."""
NO = 3
"""`trainrun checkpoints --can-resume`, `trainrun sweep can-restore`: it would not; `trainrun sweep
best`: there is none."""
NOT_REHEARSED = 3
"""`trainrun drill`: nothing was found, but not everything was rehearsed."""
FOUND = 4
"""`trainrun drill`: something would go wrong; `trainrun tasks verify`: a result cannot be used."""
INTERRUPTED = 130
