"""Checkpoints in object storage: written, committed, chosen, read, retained.

Layer: above `trainrun.contract` and `trainrun.errors`; used by the agent and the command line.
The layout and the rules are those of docs/checkpoints.md. boto3 is loaded by `open_store` alone,
for an `s3://` address.
"""

from __future__ import annotations
