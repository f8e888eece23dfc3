"""Checkpoints in object storage: written, committed, chosen, read, retained.

Layer: above `trainrun.protocol` and `trainrun.errors` only; used by the agent and the command line.
The layout and the rules are those of docs/architecture.md. Importing this loads no boto3: `s3.py`
is loaded by `open_store` for an `s3://` address, and boto3 by its first request.
"""

from __future__ import annotations

from trainrun.checkpoint.ownership import BeatWatch, beat, release
from trainrun.checkpoint.reader import materialize, read_manifest
from trainrun.checkpoint.records import Manifest, ManifestFile
from trainrun.checkpoint.resolve import resolve
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.store import ObjectInfo, ObjectStore, open_store
from trainrun.checkpoint.writer import (
    LocalFile,
    Upload,
    commit_if_complete,
    finish,
    open_steps,
    scan,
    set_aside,
    write_part,
)

__all__ = [
    "BeatWatch",
    "LocalFile",
    "Manifest",
    "ManifestFile",
    "ObjectInfo",
    "ObjectStore",
    "RunStore",
    "Upload",
    "beat",
    "commit_if_complete",
    "finish",
    "materialize",
    "open_steps",
    "open_store",
    "read_manifest",
    "release",
    "resolve",
    "retain",
    "scan",
    "set_aside",
    "write_part",
]
