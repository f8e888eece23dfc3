"""What a training script imports: report progress, save and load checkpoints, save on notice.

    import trainrun

    checkpoint = trainrun.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory: ...    # load
        first_step = checkpoint.step + 1
    for step in range(first_step, last_step):
        ...                                                 # train
        if step % 100 == 0 or trainrun.should_save():
            directory = trainrun.staging_directory()
            ...                                             # save into it
            trainrun.report({"loss": loss}, step=step, checkpoint=directory)

Names and meanings follow Ray Train where it has the same thing. The same script runs under plain
`python` and under `torchrun`, where reports go nowhere. Importing this loads neither torch nor
boto3; `trainrun.torch` has the helpers for exact resumes with PyTorch.
"""

from __future__ import annotations

import importlib
import sys
import time

from trainrun._process import excepthook

__version__ = "0.1.0"
"""As in pyproject.toml: asking what is installed would cost each start some milliseconds."""
IMPORTED = time.monotonic()
"""Time of this import on the monotonic clock; the first call reports it to the agent."""
try:
    with open("/proc/self/statm", encoding="ascii") as _statm:
        IMPORTED_PAGES = int(_statm.read().split()[1])
        """Pages of memory that this process had then; 0: unknown. Reported likewise."""
except (OSError, ValueError, IndexError):  # no /proc
    IMPORTED_PAGES = 0

TYPE_CHECKING = False  # as type checkers know it; importing `typing` costs more than all of this
if TYPE_CHECKING:
    from trainrun._process.checkpoint_handle import (
        Checkpoint,
        get_checkpoint,
        get_initial_checkpoint,
    )
    from trainrun._process.context import Context, get_context, get_params
    from trainrun._process.reporting import (
        SaveRequest,
        finish,
        report,
        should_save,
        staging_directory,
    )
    from trainrun._process.sections import long_section
    from trainrun.errors import (
        AgentLost,
        AgentRefused,
        CheckpointUnfinished,
        FatalError,
        ForeignLauncher,
        NotTheTrainingProcess,
        RetryError,
        StagingFailed,
        TrainRunError,
    )

__all__ = [
    "AgentLost",
    "AgentRefused",
    "Checkpoint",
    "CheckpointUnfinished",
    "Context",
    "FatalError",
    "ForeignLauncher",
    "NotTheTrainingProcess",
    "RetryError",
    "SaveRequest",
    "StagingFailed",
    "TrainRunError",
    "finish",
    "get_checkpoint",
    "get_context",
    "get_initial_checkpoint",
    "get_params",
    "long_section",
    "report",
    "should_save",
    "staging_directory",
]

# No name may also be a module's: importing that module would replace the name.
_HOMES = {
    "_process.checkpoint_handle": ("Checkpoint", "get_checkpoint", "get_initial_checkpoint"),
    "_process.context": ("Context", "get_context", "get_params"),
    "_process.reporting": ("SaveRequest", "finish", "report", "should_save", "staging_directory"),
    "_process.sections": ("long_section",),
}
"""Modules of the names that are not in `errors`."""

train = sys.modules[f"{__name__}.train"] = sys.modules[__name__]
"""Lets a loop written with `ray.train.report(...)` run after `import trainrun as ray`, and one with
`from ray.train import report` after `from trainrun.train import report`."""


if not TYPE_CHECKING:  # so that type checkers still find a misspelt name

    def __getattr__(name):
        """Load a name at its first use: scripts import this before they know what they need."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = next((home for home, names in _HOMES.items() if name in names), "errors")
        globals()[name] = value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})


excepthook.install()
