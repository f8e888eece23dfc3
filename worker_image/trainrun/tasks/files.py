"""Files that exist already, as arguments of tasks.

Layer: tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainrun.errors import InvalidSpec


@dataclass(frozen=True, slots=True)
class File:
    """A file for tasks to read: `tokenize.remote(tasks.File("shards/0001.jsonl"))`.

    A call with another address or version of it is another call. The task reads it where it runs:
    every node must have a local file under the same path.
    """

    uri: str
    """A path, `file:///path`, or the address of an object in a store, such as `s3://bucket/key`."""
    version: str = ""
    """What tells its content from another content under this address. Default for a local file: its
    size and the time of its last change. An object in a store needs it: its ETag, its version's id,
    or a digest."""

    def __post_init__(self) -> None:
        """Look at a local file. Raises InvalidSpec where there is none."""
        if self.version:
            return
        try:
            found = self.path.stat()
        except OSError as error:
            raise InvalidSpec(f"tasks.File: cannot look at {self.uri}: {error.strerror}") from error
        object.__setattr__(self, "version", f"{found.st_size}-{found.st_mtime_ns}")

    @property
    def path(self) -> Path:
        """Where a local file is. Raises InvalidSpec for an object in a store."""
        parts = urlsplit(self.uri)
        if parts.scheme == "file":
            return Path(unquote(parts.path))
        if "://" not in self.uri:
            return Path(self.uri).absolute()
        raise InvalidSpec(
            f"tasks.File: TrainRun does not read {self.uri} itself. Give it a version (its ETag),"
            " and read .uri in the task with your own client"
        )
