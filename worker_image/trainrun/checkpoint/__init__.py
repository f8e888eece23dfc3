"""Checkpoints in object storage: written, committed, chosen, read, retained.

Layer: above `trainrun.protocol` and `trainrun.errors` only; used by the agent and the command line.
The layout and the rules are those of docs/checkpoints.md. Importing this loads nothing yet, and
boto3 only `open_store` for an `s3://` address.
"""

from __future__ import annotations

from trainrun import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainrun.checkpoint.cache import CachedFile
    from trainrun.checkpoint.initial import materialize_uri
    from trainrun.checkpoint.inspection import CheckpointInfo, list_checkpoints, verify
    from trainrun.checkpoint.metrics_log import MetricsLog, read_metrics
    from trainrun.checkpoint.ownership import BeatWatch, beat, release
    from trainrun.checkpoint.reader import FileOnNode, materialize, read_manifest, received
    from trainrun.checkpoint.records import Manifest, ManifestFile
    from trainrun.checkpoint.resolution import resolve
    from trainrun.checkpoint.retention import retain
    from trainrun.checkpoint.run_store import RunStore
    from trainrun.checkpoint.store import ObjectInfo, ObjectStore, open_store
    from trainrun.checkpoint.upload import LocalFile, Upload, scan
    from trainrun.checkpoint.writer import (
        commit_if_complete,
        finish,
        open_steps,
        set_aside,
        write_part,
    )

__all__ = [
    "BeatWatch",
    "CachedFile",
    "CheckpointInfo",
    "FileOnNode",
    "LocalFile",
    "Manifest",
    "ManifestFile",
    "MetricsLog",
    "ObjectInfo",
    "ObjectStore",
    "RunStore",
    "Upload",
    "beat",
    "commit_if_complete",
    "finish",
    "list_checkpoints",
    "materialize",
    "materialize_uri",
    "open_steps",
    "open_store",
    "read_manifest",
    "read_metrics",
    "received",
    "release",
    "resolve",
    "retain",
    "scan",
    "set_aside",
    "verify",
    "write_part",
]

_HOMES = {
    "cache": ("CachedFile",),
    "initial": ("materialize_uri",),
    "inspection": ("CheckpointInfo", "list_checkpoints", "verify"),
    "metrics_log": ("MetricsLog", "read_metrics"),
    "ownership": ("BeatWatch", "beat", "release"),
    "reader": ("FileOnNode", "materialize", "read_manifest", "received"),
    "records": ("Manifest", "ManifestFile"),
    "resolution": ("resolve",),
    "retention": ("retain",),
    "run_store": ("RunStore",),
    "store": ("ObjectInfo", "ObjectStore", "open_store"),
    "upload": ("LocalFile", "Upload", "scan"),
    "writer": ("commit_if_complete", "finish", "open_steps", "set_aside", "write_part"),
}

if not TYPE_CHECKING:  # so that type checkers still find a misspelt name
    __getattr__, __dir__ = lazy.names_of(__name__, _HOMES)
