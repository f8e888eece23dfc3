"""All errors that TrainRun raises on purpose, in one tree.

    TrainRunError
    ├── InvalidSpec              the user's YAML or arguments are wrong
    ├── StoreError               a request to object storage failed
    │   ├── StoreUnavailable     the store is unreachable or answers with errors: worth a retry
    │   │   └── StoreFull        no room left: worth a retry once the user has made room
    │   ├── StoreDenied          credentials or permissions
    │   ├── StoreMisconfigured   wrong address: bucket, folder, region, scheme
    │   ├── PutIfAbsentUnsupported   the server has no conditional writes
    │   ├── ObjectNotFound       this object does not exist
    │   └── ObjectTooLarge       this reader reads no object of this size
    ├── CheckpointDamaged        a committed checkpoint does not read as it was written
    ├── SweepLogDamaged          the log of a sweep cannot be read
    ├── TaskLogDamaged           the log of a program of tasks cannot be read
    │   └── TaskLogMissing       the log existed and has disappeared
    ├── CheckpointConflict       two ranks reported different content for the same file
    ├── CheckpointFenced         a later attempt started from something older: it is never used
    ├── CacheUnusable            the local download folder cannot be written
    ├── TransferCancelled        the caller cancelled an upload
    ├── NotTheTrainingProcess    a child of the training process made a call
    ├── AgentLost                the agent of this worker has exited
    ├── AgentRefused             the agent could not do what the script asked for
    ├── StagingFailed            a checkpoint directory could not be staged
    │   └── CheckpointUnfinished the script is still writing it
    ├── FatalError               raised by a script: a restart would not help
    │   └── ForeignLauncher      another launcher started this process
    └── RetryError               raised by a script: a restart helps and uses no budget

Layer: the lowest one; imports nothing. Each message names the object, what happened and what to do.
"""

from __future__ import annotations


class TrainRunError(Exception):
    """Base of all errors below: catch it to catch everything that TrainRun raises on purpose."""


class FatalError(TrainRunError):
    """For scripts to raise: a restart would not help. The run fails with the message as its reason.

    It overrides all budgets. It does not count where the operator knows a better reason for the
    end of the attempt: a lost node, a preemption or an out-of-memory kill by the kernel.
    """

    __module__ = "trainrun"  # as scripts name it, in tracebacks and in failurePolicy.rules


class RetryError(TrainRunError):
    """For scripts to raise: the attempt cannot continue, and a restart helps.

    The restart uses no budget. After five in a row without a new step, further ones count as
    failures.
    """

    __module__ = "trainrun"


class InvalidSpec(TrainRunError):
    """What the user wrote cannot be used; the message lists every problem with its path."""


class StoreError(TrainRunError):
    """A request to object storage failed."""


class StoreUnavailable(StoreError):
    """The store is unreachable, timed out or answered 5xx: the same call may work later."""


class StoreFull(StoreUnavailable):
    """The store has no room for this object (disk full, quota, file size limit)."""


class NotUploadedYet(StoreUnavailable):
    """The store works, but the worker that has this file on its disk is still uploading it."""


class StoreDenied(StoreError):
    """Credentials are missing, wrong or expired, or a permission is missing."""


class StoreMisconfigured(StoreError):
    """The storage address is wrong: no such bucket or folder, bad URI, wrong region."""


class PutIfAbsentUnsupported(StoreError):
    """The store has no conditional writes (only if the object is absent); all claims need them."""


class ObjectNotFound(StoreError):
    """The named object is not in the store."""


class ObjectTooLarge(StoreError):
    """The object is larger than this reader reads at once; the store works."""


class CheckpointDamaged(TrainRunError):
    """A checkpoint differs from what its manifest says; names the object and the reason."""

    def __init__(self, message: str, *, file: str = "") -> None:
        """`file` is the object in the checkpoint's folder whose content does not match.

        Empty where a listing shows the damage: no second reader needs to confirm that.
        """
        super().__init__(message)
        self.file = file


class SweepLogDamaged(TrainRunError):
    """The log of a sweep has a hole, or a record that cannot be read; names the object."""


class TaskLogDamaged(TrainRunError):
    """The log of a program of tasks has a hole, or a batch that cannot be read; names the object.
    A restart does not repair it."""

    __module__ = "trainrun.tasks"


class TaskLogMissing(TaskLogDamaged):
    """The log existed and has disappeared: a wrong endpoint must not recompute everything."""

    __module__ = "trainrun.tasks"


class CheckpointConflict(TrainRunError):
    """Two ranks reported the same file name with different content for one checkpoint."""

    def __init__(self, message: str, *, sizes_differ: bool = False) -> None:
        """`sizes_differ`: the two files differ in size; a rank may still have been writing one."""
        super().__init__(message)
        self.sizes_differ = sizes_differ


class CheckpointFenced(TrainRunError):
    """The checkpoint just committed is never used: a later attempt started from an older one."""


class CacheUnusable(TrainRunError):
    """The local folder for downloaded checkpoints cannot be written (full, read-only, gone)."""


class TransferCancelled(TrainRunError):
    """The caller cancelled the upload."""


class NotTheTrainingProcess(TrainRunError, RuntimeError):
    """A child of the training process (a DataLoader worker, say) made a call that only the training
    process may make."""


class ForeignLauncher(FatalError, RuntimeError):
    """The agent did not start this process: a launcher in between (torchrun in a shell script, for
    example) started it with a rank of its own. A restart does not change that."""

    __module__ = "trainrun.errors"  # not that of its base


class AgentLost(TrainRunError, RuntimeError):
    """The agent of this worker has exited. It ends its processes, so this one will end soon."""


class AgentRefused(TrainRunError, RuntimeError):
    """The agent could not do what this process asked for; the message gives its reason."""

    def __init__(self, message: str, *, kind: str = "") -> None:
        """`kind` names the error of this module that the agent hit; empty: not given."""
        super().__init__(message)
        self.kind = kind


class StagingFailed(TrainRunError, RuntimeError):
    """A checkpoint directory could not be staged on this worker's disk."""


class CheckpointUnfinished(StagingFailed):
    """The script reported a checkpoint while it was still being written: it is not committed."""
