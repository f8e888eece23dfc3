"""Every error that TrainRun raises on purpose, in one tree.

    TrainRunError
    ├── InvalidSpec              the user's YAML or arguments are wrong
    ├── StoreError               object storage did not do what was asked
    │   ├── StoreUnavailable     cannot be reached or answers with trouble now: worth a retry
    │   │   └── StoreFull        no room left: worth a retry once somebody has made room
    │   ├── StoreDenied          credentials or permissions
    │   ├── StoreMisconfigured   wrong address: bucket, folder, region, scheme
    │   ├── PutIfAbsentUnsupported   the server cannot write an object only where none is
    │   └── ObjectNotFound       this one object is not there
    ├── CheckpointDamaged        a committed checkpoint cannot be read as it was written
    ├── SweepLogDamaged          the log of a sweep cannot be read
    ├── TaskLogDamaged           the log of a program of tasks cannot be read
    │   └── StoreForgot          it was there, and is gone
    ├── CheckpointConflict       two ranks brought different content for one file
    ├── CheckpointFenced         a later attempt started from something older: it is never used
    ├── CacheUnusable            the local download folder cannot be written
    ├── TransferCancelled        the caller gave up an upload
    ├── NotTheTrainingProcess    a child of the training process called in its place
    ├── AgentLost                the agent of this worker has gone
    ├── AgentRefused             the agent could not do what the script asked for
    ├── StagingFailed            a checkpoint directory could not be staged
    │   └── CheckpointUnfinished its save is still under way
    ├── FatalError               raised by a script: no restart makes sense
    │   └── ForeignLauncher      another launcher has started this process
    └── RetryError               raised by a script: a restart makes it good, and is not counted

Layer: the lowest one; imports nothing. Each message names the object, what happened and what to do.
"""

from __future__ import annotations


class TrainRunError(Exception):
    """Base of all errors below: catch it to catch whatever TrainRun raises on purpose."""


class FatalError(TrainRunError):
    """For scripts to raise: no restart makes sense, and the run fails, with the message as reason.

    It goes before every budget. Not where the world knows a better reason why the attempt ended,
    such as a lost node, a preemption or the kernel's kill for memory.
    """

    __module__ = "trainrun"  # as scripts name it, in tracebacks and in failurePolicy.rules


class RetryError(TrainRunError):
    """For scripts to raise: the attempt cannot go on, and a restart makes it good.

    The restart is charged to no budget, five times in a row without a new step; from then on it
    counts as a failure.
    """

    __module__ = "trainrun"


class InvalidSpec(TrainRunError):
    """What the user wrote cannot be used; the message lists every problem with its path."""


class StoreError(TrainRunError):
    """Object storage did not do what was asked of it."""


class StoreUnavailable(StoreError):
    """The store cannot be reached, timed out or answered 5xx: the same call may work later."""


class StoreFull(StoreUnavailable):
    """The store has no room for this object (disk full, quota, file size limit)."""


class StoreDenied(StoreError):
    """Credentials are missing, wrong or expired, or a permission is missing."""


class StoreMisconfigured(StoreError):
    """The storage address cannot work: no such bucket or folder, bad URI, wrong region."""


class PutIfAbsentUnsupported(StoreError):
    """The store cannot write an object only where none exists, which every claim relies on."""


class ObjectNotFound(StoreError):
    """The named object is not in the store."""


class CheckpointDamaged(TrainRunError):
    """A checkpoint differs from what its manifest says; names the object and the reason."""

    def __init__(self, message: str, *, file: str = "") -> None:
        """`file` is the object in the checkpoint's folder whose content was read wrongly.

        Empty where a listing shows the damage: that needs no second reader.
        """
        super().__init__(message)
        self.file = file


class SweepLogDamaged(TrainRunError):
    """The log of a sweep has a hole, or a record that cannot be read; names the object."""


class TaskLogDamaged(TrainRunError):
    """The log of a program of tasks has a hole, or a batch that cannot be read; names the object.
    No restart repairs that."""

    __module__ = "trainrun.tasks"


class TaskLogMissing(TaskLogDamaged):
    """The log was there and is gone: a wrong endpoint must not compute everything again."""

    __module__ = "trainrun.tasks"


class CheckpointConflict(TrainRunError):
    """Two ranks brought the same file name with different content for one checkpoint."""

    def __init__(self, message: str, *, sizes_differ: bool = False) -> None:
        """`sizes_differ`: of that file, which some rank may still have been writing."""
        super().__init__(message)
        self.sizes_differ = sizes_differ


class CheckpointFenced(TrainRunError):
    """What was just committed is never used: a later attempt has started from something older."""


class CacheUnusable(TrainRunError):
    """The local folder for downloaded checkpoints cannot be written (full, read-only, gone)."""


class TransferCancelled(TrainRunError):
    """An upload was given up because its caller asked for that."""


class NotTheTrainingProcess(TrainRunError, RuntimeError):
    """A child of the training process (a DataLoader worker, say) made a call that is not its to
    make."""


class ForeignLauncher(FatalError, RuntimeError):
    """This process is not the one that the agent has started: a launcher in between, torchrun in a
    shell script for instance, has started it, with a rank of its own. No restart changes that."""

    __module__ = "trainrun.errors"  # not that of its base


class AgentLost(TrainRunError, RuntimeError):
    """The agent of this worker has gone; it takes its processes with it, so this one ends soon."""


class AgentRefused(TrainRunError, RuntimeError):
    """The agent could not do what this process asked for; the message is its reason."""

    def __init__(self, message: str, *, kind: str = "") -> None:
        """`kind` is the name of the error here that the agent has met; empty: it did not say."""
        super().__init__(message)
        self.kind = kind


class StagingFailed(TrainRunError, RuntimeError):
    """A checkpoint directory could not be staged on this worker's disk."""


class CheckpointUnfinished(StagingFailed):
    """A checkpoint was reported while it was still being written, so it is not committed."""
