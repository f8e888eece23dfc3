"""Checkpoints in object storage: written, committed, chosen, read, retained.

Layer: above `trainrun.contract` and `trainrun.errors`; used by the agent and the command line.
The layout and the rules are those of docs/checkpoints.md. boto3 is loaded by `open_store` alone,
for an `s3://` address.
"""

from __future__ import annotations

from trainrun.checkpoint.ballots import asked_to_save, cast_ballot, read_ballots
from trainrun.checkpoint.choice import shown_damage
from trainrun.checkpoint.generation import generations
from trainrun.checkpoint.hangs import read_hang, write_hang
from trainrun.checkpoint.inspection import (
    CheckpointInfo,
    list_checkpoints,
    manifest_to_read,
    verify,
)
from trainrun.checkpoint.logs import (
    KEPT_ATTEMPTS,
    LogLine,
    RankLog,
    WorkerLog,
    forget_logs,
    read_logs,
    stored_logs,
    write_log,
)
from trainrun.checkpoint.metrics_log import MetricsLog, read_metrics
from trainrun.checkpoint.ownership import BeatWatch, beat, known_run_id, owner_uid, release
from trainrun.checkpoint.prospect import next_resolution
from trainrun.checkpoint.resolution import prove, resolve
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.rules.listing import ObjectInfo
from trainrun.checkpoint.rules.records import (
    AttemptRecord,
    Ballot,
    HangRecord,
    Manifest,
    ManifestFile,
    StoryRecord,
)
from trainrun.checkpoint.rules.score import Score
from trainrun.checkpoint.stores.opening import open_store
from trainrun.checkpoint.stores.run_store import RunStore
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.checkpoint.story import read_attempts, read_story, write_story
from trainrun.checkpoint.task_folder import TaskFolder
from trainrun.checkpoint.transfer.cache import CachedFile
from trainrun.checkpoint.transfer.initial import initial_on_node
from trainrun.checkpoint.transfer.on_node import FilesOnNode
from trainrun.checkpoint.transfer.reader import (
    checkpoint_on_node,
    likely_on_node,
    read_again,
    read_manifest,
)
from trainrun.checkpoint.transfer.upload import LocalFile, Upload, scan
from trainrun.checkpoint.transfer.writer import (
    check_fence,
    commit_if_complete,
    finish,
    open_steps,
    set_aside,
    write_part,
)

__all__ = [
    "KEPT_ATTEMPTS",
    "AttemptRecord",
    "Ballot",
    "BeatWatch",
    "CachedFile",
    "CheckpointInfo",
    "FilesOnNode",
    "HangRecord",
    "LocalFile",
    "LogLine",
    "Manifest",
    "ManifestFile",
    "MetricsLog",
    "ObjectInfo",
    "ObjectStore",
    "RankLog",
    "RunStore",
    "Score",
    "StoryRecord",
    "TaskFolder",
    "Upload",
    "WorkerLog",
    "asked_to_save",
    "beat",
    "cast_ballot",
    "check_fence",
    "checkpoint_on_node",
    "commit_if_complete",
    "finish",
    "forget_logs",
    "generations",
    "initial_on_node",
    "known_run_id",
    "likely_on_node",
    "list_checkpoints",
    "manifest_to_read",
    "next_resolution",
    "open_steps",
    "open_store",
    "owner_uid",
    "prove",
    "read_again",
    "read_attempts",
    "read_ballots",
    "read_hang",
    "read_logs",
    "read_manifest",
    "read_metrics",
    "read_story",
    "release",
    "resolve",
    "retain",
    "scan",
    "set_aside",
    "shown_damage",
    "stored_logs",
    "verify",
    "write_hang",
    "write_log",
    "write_part",
    "write_story",
]
