"""The kinds of findings, and what to change for each.

Layer: cli; pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "RanksSilent",
    "SaveTooLate",
    "RecoveryFailed",
    "CheckpointNeverAsked",
    "CheckpointNeverOpened",
    "OwnFilesUsed",
    "StartedOver",
    "StepsRepeated",
    "StepsSkipped",
    "LearningRateReset",
    "DataRestarted",
    "DataDiffers",
    "RandomNotRestored",
    "DataOrRandomDiffer",
    "WeightsNotLoaded",
    "WeightsDiffer",
    "OptimizerReset",
    "CurvesDiffer",
    "CheckpointsDiffer",
    "ShouldSaveNeverAsked",
    "NoticeNotUsed",
    "SaveTooSlow",
    "NoticeSavedNothing",
]

_LOAD = (
    "call trainrun.get_checkpoint() before the loop, load its files from as_directory(), and "
    "continue from its step + 1"
)
_STEPS = (
    "continue from get_checkpoint().step + 1, and report a checkpoint with the last step that "
    "it contains"
)
_ALL = (
    "save and load all that the next step depends on: weights, optimizer, learning-rate "
    "schedule, position in the data, random numbers (trainrun.torch.State does)"
)
_WEIGHTS = (
    "load the weights from get_checkpoint().as_directory() into the model that is trained, "
    "after creating it, in the precision in which they are trained"
)
_DATA = (
    "save the position in the data and continue from there: a sampler with its epoch and "
    "position (trainrun.torch.ResumableLoader does), or skip the samples already used"
)
_RANDOM = (
    "save and load the states of all random generators (random, NumPy, torch, CUDA), or seed them "
    "from the step (trainrun.torch.State has them)"
)

REMEDIES: dict[Kind, str] = {
    "RanksSilent": "call trainrun.report(step=..., checkpoint=...) on every rank, or "
    "report(..., whole=True) on the one that saves everything",
    "SaveTooLate": "call trainrun.should_save() in evaluation loops and before long work as "
    "well, or give the workers a longer terminationGracePeriodSeconds",
    "RecoveryFailed": "read the error: the script loads something else than it saved, or cannot "
    "start where its own files already exist",
    "CheckpointNeverAsked": _LOAD,
    "CheckpointNeverOpened": "load the files that get_checkpoint() returns, from "
    "as_directory(); its step alone restores nothing",
    "OwnFilesUsed": f"{_LOAD}. A folder of the script's own is lost with the pod; on a volume "
    "that outlives the pod, it may be older or newer than the checkpoint that the other ranks "
    "resume from",
    "StartedOver": "give checkpoint.folder.resumeArgs the script's own flag to resume, with "
    "{newest} where it takes the save; a script without such a flag must look for its saves in "
    "checkpoint.folder.path by itself",
    "StepsRepeated": _STEPS,
    "StepsSkipped": f"{_STEPS}; do not load files of the script's own as well, which may be newer",
    "LearningRateReset": "save the schedule's state (scheduler.state_dict()) and load it, or "
    "create the schedule for the step at which training resumes",
    "DataRestarted": _DATA,
    "DataDiffers": _DATA,
    "RandomNotRestored": _RANDOM,
    "DataOrRandomDiffer": (
        f"{_DATA}; and {_RANDOM}. Report a batch_hash metric to see which of them"
    ),
    "WeightsNotLoaded": _WEIGHTS,
    "WeightsDiffer": _WEIGHTS,
    "OptimizerReset": "save optimizer.state_dict() and load it after creating the optimizer, "
    "gradient scaler and schedule as well",
    "CurvesDiffer": _ALL,
    "CheckpointsDiffer": f"{_ALL}; also averages of weights, and counters. If the files only "
    "record the restart itself, nothing is wrong",
    "ShouldSaveNeverAsked": "call trainrun.should_save() after each step on every rank, and "
    "save when it returns true; or save on SIGTERM",
    "NoticeNotUsed": "save as soon as should_save() returns true, and report that checkpoint; "
    "if a save was already running, give a longer terminationGracePeriodSeconds",
    "SaveTooSlow": "give the workers a terminationGracePeriodSeconds in which a save and its "
    "upload fit, or save less on a notice",
    "NoticeSavedNothing": "give the workers a longer terminationGracePeriodSeconds, or call "
    "should_save() more often; `trainrun drill` on one machine shows which of the two helps",
}


AFTER_THE_LOOP = (
    "a resume from the last checkpoint leaves the loop nothing to do: the code after the loop "
    "must not need a value that only a step sets"
)
OF_ITS_SAVES = (
    "the script's own save lacks this, or its flag to resume does not load it: the files were put "
    "back as they were"
)
TAKES_FLAG = (
    "try the script by hand with checkpoint.folder.resumeArgs and one of its saves for {newest}: "
    "they must be its own flags to resume, and name what it loads, a file or a folder"
)
ONE_FOLDER = (
    "write checkpoint.folder.path as in the command or its variables: only there a drill replaces "
    "it by a temporary folder"
)
_RESUME = {
    "transformers": "call trainer.train(resume_from_checkpoint=resume_path()), with resume_path of "
    "trainrun.transformers",
    "lightning": "call trainer.fit(..., ckpt_path=resume_path()), with resume_path of "
    "trainrun.lightning",
}


def loading(kind: Kind, framework: str) -> str:
    """What to change if a checkpoint of this framework was not loaded; "": the usual remedy."""
    unloaded = kind in ("CheckpointNeverAsked", "CheckpointNeverOpened", "OwnFilesUsed")
    return _RESUME.get(framework, "") if unloaded else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that would go wrong in a real failure."""

    kind: Kind
    text: str
    advice: str = ""
    """What to change, if that is not the usual remedy."""

    @property
    def remedy(self) -> str:
        """What to change."""
        return self.advice or REMEDIES[self.kind]
