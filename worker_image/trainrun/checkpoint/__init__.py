"""Checkpoints in object storage: written, committed, chosen, read, retained.

Layer: above `trainrun.contract` and `trainrun.errors`; used by the agent and the command line.
docs/checkpoints.md defines the layout and the rules. Only `open_store` loads boto3 or
obstore, and only for the addresses that need them.
"""

from __future__ import annotations
