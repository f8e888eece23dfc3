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
    from trainrun.checkpoint.initial import initial_on_node
    from trainrun.checkpoint.inspection import CheckpointInfo, list_checkpoints, verify
    from trainrun.checkpoint.metrics_log import MetricsLog, read_metrics
    from trainrun.checkpoint.on_node import FilesOnNode
    from trainrun.checkpoint.ownership import BeatWatch, beat, release
    from trainrun.checkpoint.reader import checkpoint_on_node, read_manifest
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
    "FilesOnNode",
    "LocalFile",
    "Manifest",
    "ManifestFile",
    "MetricsLog",
    "ObjectInfo",
    "ObjectStore",
    "RunStore",
    "Upload",
    "beat",
    "checkpoint_on_node",
    "commit_if_complete",
    "finish",
    "initial_on_node",
    "list_checkpoints",
    "open_steps",
    "open_store",
    "read_manifest",
    "read_metrics",
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
    "initial": ("initial_on_node",),
    "inspection": ("CheckpointInfo", "list_checkpoints", "verify"),
    "metrics_log": ("MetricsLog", "read_metrics"),
    "ownership": ("BeatWatch", "beat", "release"),
    "on_node": ("FilesOnNode",),
    "reader": ("checkpoint_on_node", "read_manifest"),
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
