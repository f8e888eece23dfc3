"""Where everything lies below `<uri>/<runName>/`: the keys, and how to read them back.

Layer: pure. The picture is in docs/checkpoints.md; no other module spells a key.
"""

from __future__ import annotations

import re

from trainrun.protocol import CheckpointId

VERSION = 1
"""Version of this layout, recorded in `run.json`; a higher one is refused."""

RUN = "run.json"
FINISHED = "finished.json"
OWNERS = "owners/"
ATTEMPTS = "attempts/"
CHECKPOINTS = "checkpoints/"
BAD = "bad/"
METRICS = "metrics/"
MANIFEST = "manifest.json"

_NUMBERED = re.compile(r"(\d{6,})\.json")
_CHECKPOINT = re.compile(r"step-(\d{9,})-attempt-(\d+)")
_MARKER = re.compile(r"worker-(\d{5,})\.done\.json")
_METRICS = re.compile(r"(\d{6,})-(\d{5,})\.jsonl")


def owner_key(number: int) -> str:
    """The write-once claim with this number."""
    return f"{OWNERS}{number:06d}.json"


def beat_key(number: int) -> str:
    """The sign of life of the owner with this claim."""
    return f"{OWNERS}{number:06d}.beat"


def attempt_key(attempt: int) -> str:
    """The write-once record of what an attempt resumed from."""
    return f"{ATTEMPTS}{attempt:06d}.json"


def bad_key(checkpoint: CheckpointId) -> str:
    """Why a checkpoint was set aside."""
    return f"{BAD}{checkpoint.name}.json"


def metrics_key(attempt: int, number: int) -> str:
    """One write-once piece of the metrics of an attempt."""
    return f"{METRICS}{attempt:06d}-{number:05d}.jsonl"


def folder(checkpoint: CheckpointId) -> str:
    """The checkpoint's folder, with a slash at the end."""
    return f"{CHECKPOINTS}{checkpoint.name}/"


def file_name(worker: int, name: str) -> str:
    """A worker's file, relative to the checkpoint's folder."""
    return f"worker-{worker:05d}/{name}"


def marker_name(worker: int) -> str:
    """A worker's done marker, relative to the checkpoint's folder."""
    return f"worker-{worker:05d}.done.json"


def read_number(key: str) -> int | None:
    """The number of a claim or attempt record, from its key; None for any other key."""
    match = _NUMBERED.fullmatch(key.rpartition("/")[2])
    return int(match[1]) if match else None


def read_checkpoint(name: str) -> CheckpointId | None:
    """The checkpoint that a folder is named after; None for any other name."""
    match = _CHECKPOINT.fullmatch(name)
    if match is None:
        return None
    checkpoint = CheckpointId(attempt=int(match[2]), step=int(match[1]))
    return checkpoint if checkpoint.name == name else None


def read_marker(name: str) -> int | None:
    """The worker whose done marker has this name within a checkpoint's folder."""
    match = _MARKER.fullmatch(name)
    return int(match[1]) if match and marker_name(int(match[1])) == name else None


def read_metrics(key: str) -> tuple[int, int] | None:
    """Attempt and number of a piece of metrics; None for any other key."""
    match = _METRICS.fullmatch(key.rpartition("/")[2])
    return (int(match[1]), int(match[2])) if match else None
