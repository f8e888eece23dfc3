"""`Checkpoint`: a directory of files, on this machine or in object storage.

Names and meanings follow Ray Train, plus `step`, `metrics`, `metadata` and files of one rank.
"""

from __future__ import annotations

import copy
import os
import tempfile
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainrun._common.tree import walk
from trainrun._process import session
from trainrun._process.context import get_context
from trainrun._process.restoring import restore
from trainrun._process.staging import copy_entries
from trainrun.contract import metrics as metrics_
from trainrun.contract import questions
from trainrun.contract.environment import Exchange

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainrun.contract.metrics import Metric
    from trainrun.contract.questions import Described


class Checkpoint:
    """A checkpoint in a local directory; `get_checkpoint()` returns one in object storage."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Refer to a local directory; it is read when it is used."""
        self.path = os.fspath(path)
        """Its location: a local path, or the URI of its folder in object storage."""

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Return a checkpoint of the files in a local directory, to pass to `report`."""
        return Checkpoint(path)

    @property
    def step(self) -> int:
        """The step that it was reported for.

        Raises ValueError if it does not come from this run.
        """
        raise ValueError(f"checkpoint {self.path} has no step: it does not come from this run")

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that the lowest rank reported with it; empty for a local one."""
        return {}

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that the lowest rank reported with it; empty for a local one."""
        return {}

    @contextmanager
    def as_directory(
        self, rank: int | None = None, *, include: Sequence[str] = ()
    ) -> Iterator[str]:
        """Give a local directory with its files, for reading only.

        The files of all ranks are in one directory; `rank=k` gives only those of rank k. They are
        downloaded once per worker and verified; all processes share the directory, so do not write
        into it (`to_directory` makes a copy). Raises AgentRefused with the reason, for instance
        damage or that nothing matches, AgentLost, and TypeError if `include` is a string.

        Args:
            rank: Only the files of this rank.
            include: Download only files whose path matches one of these patterns, such as
                `["model/*"]`; `*` also matches `/`. A local directory is given whole.
        """
        if isinstance(include, str):
            raise TypeError(f"include={include!r} must be a list of patterns: [{include!r}]")
        yield self._fetch(rank, include)

    @contextmanager
    def as_partial_file(
        self,
        name: str,
        ranges: Sequence[tuple[int, int]],  # noqa: ARG002
    ) -> Iterator[str]:
        """Give a local file with these ranges of the file `name`, for reading only.

        The ranges of the resume point are read from the store, unless the whole file is on this
        node; the rest of the file are holes. They are not verified, since checksums are those of
        whole files. Raises AgentRefused with the reason, and AgentLost.

        Args:
            name: Path in the checkpoint.
            ranges: Offset and number of bytes of each, ascending and apart.
        """
        with self.as_directory(include=[escape(name)]) as folder:
            yield str(Path(folder, name))

    def to_directory(
        self, path: str | os.PathLike[str] | None = None, rank: int | None = None
    ) -> str:
        """Restore it into a directory of your own and return that directory.

        The directory then equals the checkpoint, including links, empty folders, modes and the
        order of file and folder times. Anything else in it, except mounted folders, is moved to
        `.<name>.trainrun/before-attempt-N` next to it, or below `.trainrun` in it if it is a mount.
        If ranks share the directory, the first one restores it in each attempt and the others wait.
        Raises ValueError for a directory that contains more than checkpoints (the working
        directory, the script, the home directory), OSError, and the errors of `as_directory`.

        Args:
            path: Target directory; created if needed. By default a new temporary directory, which
                the caller removes.
            rank: Only the files of this rank. Files of several ranks may go into one directory.
        """
        source = Path(self._fetch(rank))
        if path is None:
            path = tempfile.mkdtemp(prefix="trainrun-checkpoint-")
            copy_entries(source, Path(path), walk(source))
        else:
            place = get_context()
            part = self.path if rank is None else f"{self.path} rank {rank}"
            run_id, attempt = place.run_id, place.attempt
            restore(source, Path(path), part=part, run_id=run_id, attempt=attempt)
        return os.fspath(path)

    def local_directory(self) -> Path:
        """Return the local directory. Raises ValueError if it is in object storage."""
        return Path(self.path)

    def _fetch(self, rank: int | None, include: Sequence[str] = ()) -> str:  # noqa: ARG002 - it is here
        if rank is not None:
            raise ValueError(f"checkpoint {self.path} is a local directory, which has no ranks")
        if not Path(self.path).is_dir():
            raise FileNotFoundError(f"checkpoint {self.path} is not a directory on this machine")
        return self.path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


class StoredCheckpoint(Checkpoint):
    """The resume point of this attempt."""

    def __init__(self, uri: str, step: int) -> None:
        """Refer to the checkpoint at this URI, saved for `step`."""
        super().__init__(uri)
        self._step = step
        self._about: Described | None = None

    @property
    def step(self) -> int:
        """The step that it was reported for."""
        return self._step

    @property
    def metrics(self) -> dict[str, Metric]:
        """The metrics that the lowest rank reported with it; read once, on first use.

        Raises AgentRefused and AgentLost.
        """
        return metrics_.decode(self._described().metrics)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that the lowest rank reported with it; read once, on first use.

        Raises AgentRefused and AgentLost.
        """
        return copy.deepcopy(dict(self._described().metadata))

    def _described(self) -> Described:
        if self._about is None:
            self._about = session.current().require_agent().ask(questions.DescribeCheckpoint())
        return self._about

    def local_directory(self) -> Path:
        """Raises ValueError: it is in object storage already."""
        raise ValueError(
            f"checkpoint {self.path} already belongs to this run and cannot be reported again; to "
            "reuse its files in a new checkpoint, copy it with to_directory()"
        )

    def _fetch(self, rank: int | None, include: Sequence[str] = ()) -> str:
        return _ask_for_path(questions.FetchCheckpoint(rank=rank, include=tuple(include)))

    @contextmanager
    def as_partial_file(self, name: str, ranges: Sequence[tuple[int, int]]) -> Iterator[str]:
        """See `Checkpoint.as_partial_file`."""
        path = _ask_for_path(questions.FetchRanges(file=name, ranges=tuple(ranges)))
        try:
            yield path
        finally:
            Path(path).unlink(missing_ok=True)


class InitialCheckpoint(Checkpoint):
    """The checkpoint that `checkpoint.initialFrom` of the run names."""

    def local_directory(self) -> Path:
        """Raises ValueError: it is in object storage."""
        raise ValueError(
            f"checkpoint {self.path} is in object storage: copy it with to_directory()"
        )

    def _fetch(self, rank: int | None, include: Sequence[str] = ()) -> str:
        if rank is not None:
            raise ValueError(f"initial checkpoint {self.path} has no ranks; leave out rank=")
        return _ask_for_path(questions.FetchInitial(include=tuple(include)))


def get_checkpoint() -> Checkpoint | None:
    """Return the newest good checkpoint of this run, as chosen for this attempt, or None.

    It is the same on all ranks and for the whole attempt, even after newer ones are reported. None
    in a run that starts from scratch, and without an agent.
    """
    session.note_checkpoint_asked_for()
    given = Exchange.read(os.environ)
    if given is None or given.resume is None:
        return None
    return StoredCheckpoint(given.resume.uri, given.resume.step)


def get_initial_checkpoint() -> Checkpoint | None:
    """Return the checkpoint that `checkpoint.initialFrom` names (pretrained weights), or None.

    Use it only if `get_checkpoint()` returns None: it is not progress of this run.
    """
    given = Exchange.read(os.environ)
    if given is None or given.initial is None:
        return None
    return InitialCheckpoint(given.initial)


def _ask_for_path(
    request: questions.FetchCheckpoint | questions.FetchInitial | questions.FetchRanges,
) -> str:
    return session.current().require_agent().ask(request).path
