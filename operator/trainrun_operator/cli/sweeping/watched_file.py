"""The file of a sweep that is led: what changes in it is taken up, what is wrong is told once.

Layer: cli. What `kubectl apply` is in a cluster. Invariant: a file that cannot be taken up as a
whole changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.cli.sweeping.preparation import SweepPreparation
from trainrun_operator.core.sweep.config import changed_fields, differences, immutable_part


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The file says something else, and may."""

    prepared: SweepPreparation
    fields: tuple[str, ...]
    """Below `spec`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """The file cannot be taken up."""

    why: str
    """One line."""


class WatchedFile:
    """The file that a sweep was prepared from."""

    def __init__(self, prepared: SweepPreparation, read: Callable[[], SweepPreparation]) -> None:
        """`read` prepares it again as at the start; it may raise TrainRunError and OSError."""
        self._in_force = prepared
        self._read = read
        # Read once more at the first look: it may have changed since it was prepared.
        self._seen: tuple[int, ...] | None = ()
        self._said = ""

    def look(self) -> Change | Complaint | None:
        """What is new since the last look. Reads the file only where it was written meanwhile."""
        # Taken before the file is read: what is written during that is seen the next time.
        stamp = _stamp(self._in_force.file)
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            new = self._read()
            _check(self._in_force, new)
        except (TrainRunError, OSError) as error:
            return self._complaint(_in_one_line(error))
        self._said = ""
        fields = differences(self._in_force.sweep.spec, new.sweep.spec)
        if not fields:
            return None
        self._in_force = new
        return Change(prepared=new, fields=tuple(fields))

    def _complaint(self, why: str) -> Complaint | None:
        if why == self._said:
            return None
        self._said = why
        return Complaint(why=why)


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        it = file.stat()
    except OSError:
        return None
    return it.st_mtime_ns, it.st_size, it.st_ino


def _check(old: SweepPreparation, new: SweepPreparation) -> None:
    """Refuse what no running sweep can take up. Raises InvalidSpec."""
    before, after = old.sweep.spec, new.sweep.spec
    fixed = [it for it in differences(before, after) if _of_storage(it)]
    fixed += changed_fields(immutable_part(before), immutable_part(after))
    if old.sweep.metadata.name != new.sweep.metadata.name:
        fixed.insert(0, "metadata.name")
    if fixed:
        raise InvalidSpec(
            f"{new.file}: {', '.join(fixed)} cannot change: take that back, or give another search "
            "a file and a name of its own"
        )
    if after.resume.token < before.resume.token:
        raise InvalidSpec(
            f"{new.file}: spec.resume.token: {after.resume.token} is less than "
            f"{before.resume.token}, which it was before; it can only grow"
        )
    if old.gpus_per_trial != new.gpus_per_trial:
        # Trials of both kinds would share the GPUs, and one of them would find too few.
        raise InvalidSpec(
            f"{new.file}: spec.run: each trial has {old.gpus_per_trial} GPUs and would have "
            f"{new.gpus_per_trial}, which cannot change while trials work: stop the sweep with "
            "Ctrl-C and run it again"
        )


def _of_storage(field: str) -> bool:
    return field.startswith("storage.") and field != "storage.onExisting"


def _in_one_line(error: Exception) -> str:
    head, *rest = (line.strip() for line in str(error).splitlines())
    return f"{head}: {'; '.join(rest)}" if rest else head
