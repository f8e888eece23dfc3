"""The files of a checkpoint in its storage.

Layer: cli; reads the storage.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import TrainRunError
from trainrun_operator.cli.drilling.course import Content, Files
from trainrun_operator.cli.drilling.reading.files import LARGEST, Entries, content

if TYPE_CHECKING:
    from trainrun.checkpoint.records import Manifest, ManifestFile
    from trainrun.checkpoint.run_store import RunStore


def read_files(run: RunStore, manifest: Manifest) -> Files:
    """All of them. Of a large one that is not on this machine only size and checksum are known."""
    folder = layout.folder(CheckpointId(attempt=manifest.attempt, step=manifest.step))
    found = {}
    for item in manifest.files:
        key = run.key(folder + layout.file_name(item.worker, item.name))
        try:
            entries = _entries(run, key, item)
        except (OSError, TrainRunError):
            entries = None  # gone or damaged meanwhile
        found[item.name] = Content((item.size, item.crc32), entries)
    return found


def _entries(run: RunStore, key: str, item: ManifestFile) -> Entries | None:
    at = urlsplit(run.store.uri)
    if at.scheme == "file":
        with Path(unquote(at.path), key).open("rb") as file:
            return content(file, item.size)
    if item.size > LARGEST:
        return None
    with tempfile.TemporaryDirectory() as made:
        path = Path(made, "file")
        run.store.get_file(key, path, size=item.size, crc32=item.crc32)
        with path.open("rb") as file:
            return content(file, item.size)
