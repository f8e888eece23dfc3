"""Where a local run keeps what is not in its storage: status, lock, one folder per worker.

Layer: worlds/local. Beside a file storage, so that another shell finds the same run; for a bucket
in the user's state folder, under a hash of the storage's URI.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

SECRET_BYTES = 32


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
        """Held by the process that leads the run."""
        return self.folder / "driver.lock"

    @property
    def nodes(self) -> Path:
        """One folder per worker."""
        return self.folder / "nodes"

    @property
    def faults(self) -> Path:
        """Marks of the faults on demand that have struck."""
        return self.folder / "faults"

    def read_secret(self) -> bytes:
        """What keys of the run's attempts are derived from, for this user alone: made when it is
        asked for first, by the process that leads the run."""
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
