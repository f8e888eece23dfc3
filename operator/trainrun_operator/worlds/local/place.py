"""A local run's folder on this machine: status, lock, one folder per worker.

Layer: worlds/local. For a file storage the folder is inside it, so that another shell finds the
same run; for a bucket it is in the user's state folder, under a hash of the storage's URI. The
status is in a guarded file, which replaces the API server of a cluster. Invariants: the file is
always whole (temporary file, fsync, rename); a write succeeds only over the version that its writer
has read; the uid is drawn once per run.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trainrun.checkpoint.stores.file import sync_folder
from trainrun.errors import TrainRunError
from trainrun_operator.api.run.status import TrainRunStatus, json_object, status_from
from trainrun_operator.worlds.base import StatusConflict, StatusUnwritable

SECRET_BYTES = 32
FORMAT = 1
"""Version of the status file's layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """Paths of one run on this machine."""

    folder: Path

    @property
    def status(self) -> Path:
        """The guarded status file."""
        return self.folder / "status.json"

    @property
    def lock(self) -> Path:
        """The driver lock, held by the process that leads the run."""
        return self.folder / "driver.lock"

    @property
    def nodes(self) -> Path:
        """The folder with one folder per worker."""
        return self.folder / "nodes"

    @property
    def faults(self) -> Path:
        """The folder of marks of faults on demand that have struck."""
        return self.folder / "faults"

    def read_secret(self) -> bytes:
        """The secret that the keys of the run's attempts are derived from, readable by this user
        only. Created at the first call, by the process that leads the run."""
        path = self.folder / "secret"
        with contextlib.suppress(FileNotFoundError):
            if len(found := path.read_bytes()) == SECRET_BYTES:
                return found
        path.unlink(missing_ok=True)  # cut off
        made = secrets.token_bytes(SECRET_BYTES)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(made)
        return made

    @property
    def cache(self) -> Path:
        """Downloaded checkpoints, shared by all workers of this machine."""
        return self.folder / "cache"


def place_of(uri: str, run_name: str, *, environ: Mapping[str, str]) -> RunPlace:
    """The place of run `run_name` in storage `uri`."""
    return RunPlace(folder=places_root(uri, environ=environ) / run_name)


def places_root(uri: str, *, environ: Mapping[str, str]) -> Path:
    """The folder that holds the places of all runs in storage `uri`."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).resolve() / ".trainrun"
    state = environ.get("XDG_STATE_HOME") or str(
        Path(environ.get("HOME", "/root")) / ".local/state"
    )
    digest = hashlib.sha256(uri.rstrip("/").encode()).hexdigest()[:16]
    return Path(state) / "trainrun" / digest


class StatusUnreadable(TrainRunError):
    """The status file exists but cannot be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """The content of a status file."""

    uid: str
    resource_version: int
    generation: int
    """Grows whenever the run is started with another spec."""
    spec: dict[str, Any]
    """The TrainRun as it last ran, for `trainrun status`."""
    status: TrainRunStatus


class StatusFile:
    """One run's status file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tried = b""
        """The content of the last write if it failed; else empty."""

    def read(self) -> StoredRun | None:
        """The stored run; None if there is none. Raises StatusUnreadable."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            data = json.loads(text)
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']} is not {FORMAT}")
            return StoredRun(
                uid=data["uid"],
                resource_version=data["resourceVersion"],
                generation=data["generation"],
                spec=data["spec"],
                status=status_from(data["status"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StatusUnreadable(
                f"{self.path}: cannot be read ({error}). The checkpoints do not depend on it: move "
                "it away, and the run continues from the newest one, if any, with fresh budgets"
            ) from error

    def create(self, spec: dict[str, Any]) -> StoredRun:
        """The first version of a run's status, with a new uid.

        Raises StatusConflict and StatusUnwritable.
        """
        first = StoredRun(
            uid=str(uuid.uuid4()),
            resource_version=0,
            generation=1,
            spec=spec,
            status=TrainRunStatus(),
        )
        return self.replace(first)

    def replace(self, run: StoredRun) -> StoredRun:
        """Write `run` over the version that it was made from.

        Returns it with its new version. Raises StatusConflict if another version is stored, and
        StatusUnwritable if the disk is full or the storage is gone.
        """
        try:
            return self._replace(run)
        except OSError as error:
            raise StatusUnwritable(
                f"cannot write {self.path}: {error.strerror}; the run waits until it can: "
                f"{remedy(error, self.path.parent)}"
            ) from error

    def _replace(self, run: StoredRun) -> StoredRun:
        # Do not create the folders above: if the storage vanished (an unmounted disk), the run
        # would continue in an empty one as if nothing had ever been committed.
        folder = self.path.parent
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir(exist_ok=True)
        # Not the status file itself: it is replaced, and a lock would stay with the old inode.
        with (self.path.with_suffix(".guard")).open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            stored = self.read()
            # A removed file (None) has nothing to lose.
            if stored is not None and self._is_ours(stored):
                run = replace(run, resource_version=stored.resource_version)
            if stored is not None and stored.resource_version != run.resource_version:
                raise StatusConflict(
                    f"{self.path}: expected version {run.resource_version}, found version "
                    f"{stored.resource_version}"
                )
            written = replace(run, resource_version=run.resource_version + 1)
            self._tried = _encode(written)
            _write_durably(self.path, self._tried)
            self._tried = b""
        return written

    def _is_ours(self, stored: StoredRun) -> bool:
        """Whether `stored` is our last write, which was reported as failed but arrived (a folder
        that cannot be synced, a lost answer of NFS)."""
        return self._tried == _encode(stored)


def remedy(error: OSError, folder: Path) -> str:
    """The remedy for an error in a run's own folder."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"make room in {folder}"
        case errno.ENOLCK | errno.ENOSYS | errno.EOPNOTSUPP:
            return f"the file system of {folder} lacks locks (flock); use a storage on another one"
        case errno.ENOENT:
            return "bring the storage's folder back (is its disk still mounted?)"
        case _:
            return f"make {folder} writable"


def _encode(run: StoredRun) -> bytes:
    data = {
        "format": FORMAT,
        "uid": run.uid,
        "resourceVersion": run.resource_version,
        "generation": run.generation,
        "spec": run.spec,
        "status": json_object(run.status),
    }
    return json.dumps(data, indent=1).encode()


def _write_durably(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)
